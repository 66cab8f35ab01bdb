// Counts checks and prints those that fail; sections print a line each.
export class Report {
  constructor() {
    this.failures = 0;
    this.checks = 0;
  }
  check(name, ok, why = () => '') {
    this.checks++;
    if (ok) return;
    this.failures++;
    console.log(`FAIL ${name}: ${why()}`);
  }
  async section(name, run) {
    const checks = this.checks;
    const failures = this.failures;
    const begin = Date.now();
    await run();
    const seconds = ((Date.now() - begin) / 1000).toFixed(1);
    console.log(`${name}: ${this.checks - checks} checks, ${this.failures - failures} failed, ${seconds} s`);
  }
}
