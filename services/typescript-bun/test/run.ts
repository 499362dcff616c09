/** Runs the unit tests and prints the number of passed tests as the last line. */

export {};

const run = Bun.spawn([process.execPath, 'test', '--timeout', '60000'], { stdout: 'inherit', stderr: 'pipe' });
const report = await new Response(run.stderr).text();
process.stderr.write(report);
const count = (what: string) => Number(new RegExp(`^\\s*(\\d+) ${what}$`, 'm').exec(report)?.[1] ?? 0);
console.log(`${count('pass')} passed, ${count('fail')} failed`);
process.exit(await run.exited);
