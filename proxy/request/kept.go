package request

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// keepAlias keeps a piece in the client's read buffer, which does not change until the exchange
// ends.
func (b *Body) keepAlias(piece []byte) {
	if b.keeping && len(b.kept) == 0 {
		b.kept = append(b.kept, piece)
		b.own = 1
		b.keptLen += int64(len(piece))
		return
	}
	b.keepCopy(piece)
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
		return b.scratch
	}
	return b.room()
}

// inScratch reports whether bytes to be kept are read to scratch first.
func (b *Body) inScratch() bool { return b.keeping && len(b.kept) == b.own }

// came keeps piece, which was read to the beginning of space, and returns it where it stays.
func (b *Body) came(piece []byte) []byte {
	if !b.inScratch() {
		b.commit(len(piece))
		return piece
	}
	b.keepCopy(piece)
	if !b.keeping {
		return piece
	}
	b.releaseScratch()
	return b.kept[len(b.kept)-1] // a new chunk has room for all of scratch
}

// room returns the space for the next bytes: the free end of the last kept chunk, a new chunk, or
// scratch if nothing is kept.
func (b *Body) room() []byte {
	if b.keeping && b.keptLen >= b.of.Route.RetryBufferBytes {
		b.stopKeeping(policy.ReplayTooLarge)
	}
	if b.keeping && len(b.kept) > b.own {
		if last := b.kept[len(b.kept)-1]; len(last) < cap(last) {
			return last[len(last):cap(last)]
		}
	}
	if b.keeping {
		if chunk := b.newChunk(); chunk != nil {
			return chunk
		}
	}
	b.fitScratch()
	return b.scratch
}

// fitScratch makes the scratch as large as the last read needed. A slow body then holds little
// memory, and a fast one gets a large buffer after two reads.
func (b *Body) fitScratch() {
	size := buffer.Small
	if b.scratch != nil {
		if !b.scratchFull || len(b.scratch) >= buffer.Large {
			return
		}
		size = min(4*len(b.scratch), buffer.Large)
		buffer.Put(b.scratch)
	}
	b.scratch, b.scratchFull = buffer.Get(size), false
}

// newChunk adds an empty kept chunk, sized by the bytes still to come.
func (b *Body) newChunk() []byte {
	size := buffer.Medium
	if b.keptLen >= 2*buffer.Medium { // before that, a slow body would hold memory for bytes that may never come
		size = buffer.Large
	} else if b.framing.Kind == http1.BodyLength && b.left <= buffer.Small || b.keptLen == 0 && b.of.Process.UnderPressure() {
		size = buffer.Small
	}
	if !b.memory().Take(size) {
		b.stopKeeping(policy.ReplayBufferFull)
		return nil
	}
	chunk := buffer.Get(size)
	b.kept = append(b.kept, chunk[:0])
	return chunk
}

// commit records that n bytes were written to the space that room returned.
func (b *Body) commit(n int) {
	if !b.keeping {
		b.scratchFull = n == len(b.scratch)
		return
	}
	last := len(b.kept) - 1
	b.kept[last] = b.kept[last][:len(b.kept[last])+n]
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
	for i, chunk := range b.kept {
		if i >= b.own {
			b.memory().Give(cap(chunk))
			buffer.Put(chunk)
		}
		b.kept[i] = nil
	}
	b.kept, b.own, b.keptLen = b.kept[:0], 0, 0
}

// Close returns all memory at the end of the exchange.
func (b *Body) Close() {
	if len(b.kept) > 0 || b.scratch != nil {
		b.releaseAll()
	}
}

func (b *Body) releaseAll() {
	b.release()
	b.releaseScratch()
}

func (b *Body) releaseScratch() {
	if b.scratch != nil {
		buffer.Put(b.scratch)
		b.scratch, b.scratchFull = nil, false
	}
}
