#!/usr/bin/env node
import { main } from '../lib/command.js';

process.exit(await main(process.argv.slice(2)));
