// Starts `redlite serve` and waits until it listens.
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const toolsTemplate = fileURLToPath(new URL('tools.jinja', import.meta.url));

/** A running server: its address, its process, and what it wrote to stderr. */
export async function startServer(redlite, model, options = [], template = toolsTemplate) {
  const args = ['serve', model, '--port', '0', '--threads', '1', '--chat-template', template, ...options];
  const child = spawn(redlite, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  const server = { child, log: '', url: '' };
  const exited = new Promise((done) => child.once('exit', (code, signal) => done(code ?? signal)));
  await new Promise((resolve, reject) => {
    child.stderr.on('data', (bytes) => {
      server.log += bytes;
      const found = /listening at (http:\S+)/.exec(server.log);
      if (found) {
        server.url = found[1];
        resolve();
      }
    });
    exited.then(() => reject(new Error(`the server ended: ${server.log}`)));
  });
  /** Asks it to end; returns its exit code. */
  server.stop = async () => {
    child.kill('SIGTERM');
    return exited;
  };
  server.kill = async () => {
    child.kill('SIGKILL');
    return exited;
  };
  return server;
}

/** One value of /metrics, labels being part of the name. */
export async function metric(url, name) {
  const text = await (await fetch(`${url}/metrics`)).text();
  const line = text.split('\n').find((l) => l.startsWith(`redlite_${name} `));
  if (!line) throw new Error(`no metric ${name}`);
  return Number(line.split(' ')[1]);
}

export async function until(what, condition, seconds = 10) {
  const end = Date.now() + seconds * 1000;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`waited ${seconds} s for: ${what}`);
    await new Promise((done) => setTimeout(done, 20));
  }
}
