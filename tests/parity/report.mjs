// Counts checks and prints those that fail; sections print a line each.
export class Report {
  constructor(print = console.log) {
    this.print = print;
    this.failures = 0;
    this.checks = 0;
  }
  check(name, ok, why) {
    this.checks++;
    if (ok) return;
    this.failures++;
    this.print(`FAIL ${name}: ${why()}`);
  }
  async section(name, run) {
    const {checks, failures} = this;
    const begin = Date.now();
    await run();
    const seconds = ((Date.now() - begin) / 1000).toFixed(1);
    this.print(`${name}: ${this.checks - checks} checks, ${this.failures - failures} failed, ${seconds} s`);
  }
}
