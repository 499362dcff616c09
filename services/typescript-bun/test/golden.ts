/** The golden messages of the protocol, which gateways in all languages are tested with. */

import messages from '../../testdata/stt-messages.json' with { type: 'json' };

// biome-ignore lint/suspicious/noExplicitAny: entries of one list have different members
export const golden: Record<'client' | 'inference' | 'partial' | 'error', any[]> = messages;
