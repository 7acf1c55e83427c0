// node node.mjs JOB: measure.mjs on a job in JSON, whose answer is printed.
import { argv, exit, stdout } from "node:process";

import { measured } from "./measure.mjs";

const answer = await measured(JSON.parse(argv[2]));
stdout.write(JSON.stringify(answer), () => exit(0));
