/** The golden messages of the protocol, which gateways in all languages are tested with. */

import { readFileSync } from 'node:fs';

/** @type {{client: any[], inference: any[], partial: any[], error: any[]}} */
export const golden = JSON.parse(readFileSync(new URL('../../testdata/stt-messages.json', import.meta.url), 'utf8'));
