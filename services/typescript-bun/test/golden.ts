/** The golden messages of the protocol, which are shared by the tests of all gateways. */

import messages from '../../testdata/stt-messages.json' with { type: 'json' };

// biome-ignore lint/suspicious/noExplicitAny: entries of one list have different members
export const golden: Record<'client' | 'inference' | 'partial' | 'error', any[]> = messages;
