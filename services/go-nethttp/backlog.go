package main

// Audio that waits for its tick: the bytes, their sequence numbers, and when they were read. Pure.

import (
	"sync"
	"time"
)

// audio is memory for frames; it goes from a backlog to a request, and back into the pool.
type audio struct{ bytes []byte }

// audioPool lends memory for frames, with room for what comes between two ticks.
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
	// What grew in an overload is not kept.
	if cap(a.bytes) <= 2*p.size {
		a.bytes = a.bytes[:0]
		p.pool.Put(a)
	}
}

// mark says when frames were read: those up to newest that come after the mark before.
type mark struct {
	newest uint64
	at     time.Time
}

// taken are frames that left a backlog, with the times at which the first and the last were read.
type taken struct {
	span
	oldestRead, newestRead time.Time
}

// backlog holds the frames of one session that wait.
type backlog struct {
	pool *audioPool
	// audio holds the frames that wait from head on; nil while none waits.
	audio *audio
	head  int
	marks []mark
	// left and came are the sequence numbers of the last frame that left and of the last that came.
	left, came uint64
	// overflow are frames that were dropped since that was last reported.
	overflow *taken
}

// waiting is the number of frames that wait.
func (b *backlog) waiting() uint64 { return b.came - b.left }

// add appends a frame that was read at a time.
func (b *backlog) add(frame []byte, at time.Time) {
	if b.audio == nil {
		b.audio = b.pool.get()
	}
	bytes := b.audio.bytes
	if b.head > 0 && len(bytes)+len(frame) > cap(bytes) {
		// Frames were dropped in front: move the rest there instead of growing.
		bytes = bytes[:copy(bytes, bytes[b.head:])]
		b.head = 0
	}
	b.audio.bytes = append(bytes, frame...)
	b.came++
	if last := len(b.marks) - 1; last >= 0 && b.marks[last].at.Equal(at) {
		b.marks[last].newest = b.came
	} else {
		b.marks = append(b.marks, mark{newest: b.came, at: at})
	}
}

// leave takes the numbers and times of the oldest frames, at least one and at most all that wait.
func (b *backlog) leave(frames uint64) taken {
	t := taken{span: span{oldest: b.left + 1, frames: frames}, oldestRead: b.marks[0].at}
	b.left += frames
	for b.marks[0].newest < b.left {
		b.marks = b.marks[1:]
	}
	t.newestRead = b.marks[0].at
	if b.marks[0].newest == b.left {
		b.marks = b.marks[1:]
	}
	return t
}

// drop removes the oldest frame, to be reported later.
func (b *backlog) drop() {
	t := b.leave(1)
	b.head += frameBytes
	if b.overflow == nil {
		b.overflow = &t
		return
	}
	// Frames leave otherwise only after a report, so these follow those that were dropped before.
	b.overflow.frames++
	b.overflow.newestRead = t.newestRead
}

// takeOverflow returns what was dropped and is not reported yet; nil if nothing was.
func (b *backlog) takeOverflow() *taken {
	t := b.overflow
	b.overflow = nil
	return t
}

// take removes all frames that wait; there must be one. The batch is what remains of the memory behind its start.
func (b *backlog) take() (taken, batch) {
	first := b.marks[:0]
	t := b.leave(b.waiting())
	b.marks = first
	taken := batch{audio: b.audio, bytes: b.audio.bytes[b.head:]}
	b.audio, b.head = nil, 0
	return t, taken
}

// clear gives up all that waits. Nothing may be added any more.
func (b *backlog) clear() {
	if b.audio != nil {
		b.pool.put(b.audio)
	}
	*b = backlog{}
}

// batch is audio on its way to the inference, and the memory that it is in.
type batch struct {
	audio *audio
	bytes []byte
}
