package request

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// piece is a kept piece of a body.
type piece struct {
	own   buffer.Handle // a chunk, charged by its capacity; none: the piece is in the client's read buffer
	alias []byte        // there
}

func (p *piece) bytes() []byte {
	if p.own.Owns() {
		return p.own.Bytes()
	}
	return p.alias
}

// last returns the chunk that was kept last, nil if there is none.
func (b *Body) last() *buffer.Handle {
	if n := len(b.kept); n > 0 && b.kept[n-1].own.Owns() {
		return &b.kept[n-1].own
	}
	return nil
}

// keepAlias keeps a piece in the client's read buffer, which does not change until the exchange
// ends.
func (b *Body) keepAlias(p []byte) {
	if b.keeping && len(b.kept) == 0 {
		b.kept = append(b.kept, piece{alias: p})
		b.keptLen += int64(len(p))
		return
	}
	b.keepCopy(p)
}

// keepCopy keeps a copy of data.
func (b *Body) keepCopy(data []byte) {
	for len(data) > 0 && b.keeping {
		dst := b.room()
		if !b.keeping {
			return
		}
		n := copy(dst, data)
		b.commit(n)
		data = data[n:]
	}
}

// space returns where the next bytes are read to. A body that is only awaited takes nothing of the retry buffer,
// so its first bytes come to scratch.
func (b *Body) space() []byte {
	if b.inScratch() {
		b.fitScratch()
		return b.scratch.Bytes()
	}
	return b.room()
}

// inScratch reports whether bytes to be kept are read to scratch first.
func (b *Body) inScratch() bool { return b.keeping && b.last() == nil }

// came keeps p, which was read to the beginning of space, and returns it where it stays.
func (b *Body) came(p []byte) []byte {
	if !b.inScratch() {
		b.commit(len(p))
		return p
	}
	b.keepCopy(p)
	if !b.keeping {
		return p
	}
	b.releaseScratch()
	return b.last().Bytes() // a new chunk has room for all of scratch
}

// room returns the space for the next bytes: the free end of the last kept chunk, a new chunk, or
// scratch if nothing is kept.
func (b *Body) room() []byte {
	if b.keeping && b.keptLen >= b.of.Route.RetryBufferBytes {
		b.stopKeeping(policy.ReplayTooLarge)
	}
	if b.keeping {
		if last := b.last(); last != nil && last.Room() > 0 {
			return last.Free()
		}
		if b.newChunk() {
			return b.last().Free()
		}
	}
	b.fitScratch()
	return b.scratch.Bytes()
}

// fitScratch makes the scratch as large as the last read needed. A slow body then holds little
// memory, and a fast one gets a large buffer after two reads.
func (b *Body) fitScratch() {
	size := buffer.Small
	if b.scratch.Owns() {
		if !b.scratchFull || b.scratch.Len() >= buffer.Large {
			return
		}
		size = min(4*b.scratch.Len(), buffer.Large)
		b.scratch.Put()
	}
	b.scratch, b.scratchFull = buffer.Get(size), false
}

// newChunk adds an empty kept chunk, sized by the bytes still to come. It reports false if there is no memory for it.
func (b *Body) newChunk() bool {
	size := buffer.Medium
	if b.keptLen >= 2*buffer.Medium { // before that, a slow body would hold memory for bytes that may never come
		size = buffer.Large
	} else if b.framing.Kind == http1.BodyLength && b.left <= buffer.Small || b.keptLen == 0 && b.of.Process.UnderPressure() {
		size = buffer.Small
	}
	if !b.memory().Take(size) {
		b.stopKeeping(policy.ReplayBufferFull)
		return false
	}
	b.kept = append(b.kept, piece{own: buffer.GetEmpty(size)})
	return true
}

// commit records that n bytes were written to the space that room returned.
func (b *Body) commit(n int) {
	if !b.keeping {
		b.scratchFull = n == b.scratch.Len()
		return
	}
	last := b.last()
	last.Resize(last.Len() + n)
	b.keptLen += int64(n)
	if b.keptLen > b.of.Route.RetryBufferBytes {
		b.stopKeeping(policy.ReplayTooLarge)
	}
}

// stopKeeping stops keeping the body because of why. The memory is released at the next read or at
// the end, because the piece being sent may lie in it.
func (b *Body) stopKeeping(why policy.Replay) {
	b.keeping = false
	b.replayLoss.Store(uint32(why))
}

// release returns the kept bytes.
func (b *Body) release() {
	for i := range b.kept {
		if chunk := &b.kept[i].own; chunk.Owns() {
			b.memory().Give(chunk.Cap())
			chunk.Put()
		}
		b.kept[i].alias = nil
	}
	b.kept, b.keptLen = b.kept[:0], 0
}

// Close returns all memory at the end of the exchange.
func (b *Body) Close() {
	if len(b.kept) > 0 || b.scratch.Owns() {
		b.releaseAll()
	}
}

func (b *Body) releaseAll() {
	b.release()
	b.releaseScratch()
}

func (b *Body) releaseScratch() {
	b.scratch.Put()
	b.scratchFull = false
}
