/** The golden messages of the protocol, which are shared by the tests of all gateways. */

import { readFileSync } from 'node:fs';

/** @type {{client: any[], inference: any[], partial: any[], error: any[]}} */
export const golden = JSON.parse(readFileSync(new URL('../../testdata/stt-messages.json', import.meta.url), 'utf8'));
