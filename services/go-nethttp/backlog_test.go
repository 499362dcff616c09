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

// TestBacklog_KeepsOrderWhateverHappens runs random arrivals, drops and batches, and compares the backlog with a model of
// sequence numbers.
func TestBacklog_KeepsOrderWhateverHappens(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	b := backlog{pool: newAudioPool(5)}
	came, left := uint64(0), uint64(0)
	readAt := map[uint64]time.Time{}
	dropped := uint64(0)
	for now := epoch; now.Before(epoch.Add(5 * time.Second)); now = now.Add(time.Millisecond) {
		for range random.IntN(4) {
			came++
			readAt[came] = now
			b.add(frameOf(came), now)
			if b.waiting() > 12 {
				b.drop()
				dropped++
				left++
			}
		}
		if random.IntN(6) > 0 || b.waiting() == 0 {
			continue
		}
		if overflow := b.takeOverflow(); overflow != nil {
			if overflow.frames != dropped || overflow.newest() != left || !overflow.newestRead.Equal(readAt[left]) {
				t.Fatalf("dropped %+v, but %d up to %d", overflow, dropped, left)
			}
			dropped = 0
		}
		taken, batch := b.take()
		if taken.oldest != left+1 || taken.newest() != came || !taken.oldestRead.Equal(readAt[left+1]) || !taken.newestRead.Equal(readAt[came]) {
			t.Fatalf("took %+v instead of %d to %d", taken, left+1, came)
		}
		want := []byte{}
		for number := left + 1; number <= came; number++ {
			want = append(want, frameOf(number)...)
		}
		if !bytes.Equal(batch.bytes, want) {
			t.Fatalf("the audio of %d to %d is damaged", left+1, came)
		}
		b.pool.put(batch.audio)
		left = came
	}
	if came < 1000 {
		t.Errorf("only %d frames came", came)
	}
}
