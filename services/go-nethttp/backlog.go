package main

// Audio that waits for the next tick: the bytes, their sequence numbers, and when they were read. No I/O, no clock.

import (
	"sync"
	"time"
)

// audio is a buffer for frames. It moves from a backlog to a request, and back into the pool.
type audio struct{ bytes []byte }

// audioPool provides buffers with room for the frames between two ticks; size is their capacity in bytes.
type audioPool struct {
	pool sync.Pool
	size int
}

func newAudioPool(frames uint64) *audioPool {
	p := &audioPool{size: int(frames) * frameBytes}
	p.pool.New = func() any { return &audio{bytes: make([]byte, 0, p.size)} }
	return p
}

func (p *audioPool) get() *audio {
	a, _ := p.pool.Get().(*audio)
	return a
}

func (p *audioPool) put(a *audio) {
	// Buffers that grew in an overload are not kept.
	if cap(a.bytes) <= 2*p.size {
		a.bytes = a.bytes[:0]
		p.pool.Put(a)
	}
}

// mark is the time at which a group of frames was read: those after the previous mark, up to number newest.
type mark struct {
	newest uint64
	readAt time.Time
}

// readSpan describes frames that were removed from a backlog, with the times at which the first and the last were read.
type readSpan struct {
	span
	oldestReadAt, newestReadAt time.Time
}

// backlog holds the waiting frames of one session.
type backlog struct {
	pool *audioPool
	// audio holds the waiting frames from offset head on; nil while none waits.
	audio *audio
	head  int
	marks []mark
	// lastRemoved is the sequence number of the last frame that was taken or dropped, lastAdded that of the newest frame.
	lastRemoved, lastAdded uint64
	// overflow describes frames that were dropped and not reported yet.
	overflow *readSpan
}

// waiting returns the number of frames that wait.
func (b *backlog) waiting() uint64 { return b.lastAdded - b.lastRemoved }

// add appends a frame that was read at the given time.
func (b *backlog) add(frame []byte, at time.Time) {
	if b.audio == nil {
		b.audio = b.pool.get()
	}
	bytes := b.audio.bytes
	if b.head > 0 && len(bytes)+len(frame) > cap(bytes) {
		// Frames were dropped at the front: move the waiting ones there instead of growing.
		bytes = bytes[:copy(bytes, bytes[b.head:])]
		b.head = 0
	}
	b.audio.bytes = append(bytes, frame...)
	b.lastAdded++
	if last := len(b.marks) - 1; last >= 0 && b.marks[last].readAt.Equal(at) {
		b.marks[last].newest = b.lastAdded
	} else {
		b.marks = append(b.marks, mark{newest: b.lastAdded, readAt: at})
	}
}

// remove removes the numbers and times of the oldest frames: at least one, and at most all that wait.
func (b *backlog) remove(frames uint64) readSpan {
	t := readSpan{span: span{oldest: b.lastRemoved + 1, frames: frames}, oldestReadAt: b.marks[0].readAt}
	b.lastRemoved += frames
	for b.marks[0].newest < b.lastRemoved {
		b.marks = b.marks[1:]
	}
	t.newestReadAt = b.marks[0].readAt
	if b.marks[0].newest == b.lastRemoved {
		b.marks = b.marks[1:]
	}
	return t
}

// drop drops the oldest frame and adds it to overflow.
func (b *backlog) drop() {
	t := b.remove(1)
	b.head += frameBytes
	if b.overflow == nil {
		b.overflow = &t
		return
	}
	// An overflow is reported before the next batch is taken, so this frame directly follows the dropped ones.
	b.overflow.frames++
	b.overflow.newestReadAt = t.newestReadAt
}

// takeOverflow returns and clears the description of dropped frames; nil if none were dropped.
func (b *backlog) takeOverflow() *readSpan {
	t := b.overflow
	b.overflow = nil
	return t
}

// take removes all waiting frames, of which there must be at least one. The batch owns their buffer.
func (b *backlog) take() (readSpan, batch) {
	emptyMarks := b.marks[:0]
	t := b.remove(b.waiting())
	b.marks = emptyMarks
	audio := batch{audio: b.audio, bytes: b.audio.bytes[b.head:]}
	b.audio, b.head = nil, 0
	return t, audio
}

// clear discards all waiting frames. No frames may be added afterwards.
func (b *backlog) clear() {
	if b.audio != nil {
		b.pool.put(b.audio)
	}
	*b = backlog{}
}

// batch is the audio of one request, and the buffer that holds it.
type batch struct {
	audio *audio
	bytes []byte
}
