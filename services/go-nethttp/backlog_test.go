package main

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"
)

// frameOf returns a frame whose first 8 bytes are its number.
func frameOf(number uint64) []byte {
	return append(binary.BigEndian.AppendUint64(nil, number), make([]byte, frameBytes-8)...)
}

// TestBacklog_KeepsOrderWithRandomInput runs random arrivals, drops and batches, and compares the backlog with a model of
// sequence numbers.
func TestBacklog_KeepsOrderWithRandomInput(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	b := backlog{pool: newAudioPool(5)}
	added, removed := uint64(0), uint64(0)
	readAt := map[uint64]time.Time{}
	dropped := uint64(0)
	for now := epoch; now.Before(epoch.Add(5 * time.Second)); now = now.Add(time.Millisecond) {
		for range random.IntN(4) {
			added++
			readAt[added] = now
			b.add(frameOf(added), now)
			if b.waiting() > 12 {
				b.drop()
				dropped++
				removed++
			}
		}
		if random.IntN(6) > 0 || b.waiting() == 0 {
			continue
		}
		if overflow := b.takeOverflow(); overflow != nil {
			if overflow.frames != dropped || overflow.newest() != removed || !overflow.newestReadAt.Equal(readAt[removed]) {
				t.Fatalf("dropped %+v, but %d up to %d", overflow, dropped, removed)
			}
			dropped = 0
		}
		taken, batch := b.take()
		if taken.oldest != removed+1 || taken.newest() != added || !taken.oldestReadAt.Equal(readAt[removed+1]) || !taken.newestReadAt.Equal(readAt[added]) {
			t.Fatalf("took %+v instead of %d to %d", taken, removed+1, added)
		}
		want := []byte{}
		for number := removed + 1; number <= added; number++ {
			want = append(want, frameOf(number)...)
		}
		if !bytes.Equal(batch.bytes, want) {
			t.Fatalf("the audio of %d to %d is damaged", removed+1, added)
		}
		b.pool.put(batch.audio)
		removed = added
	}
	if added < 1000 {
		t.Errorf("only %d frames came", added)
	}
}
