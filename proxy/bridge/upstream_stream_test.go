package bridge

import (
	"net/textproto"
	"testing"
)

// An upstream can make us hold no more of interim responses than of a body.
func TestInterimResponsesThatNobodyReadsAreBounded(t *testing.T) {
	s := NewUpstreamStream(nil, UpstreamStreamOptions{})
	for n := range bufferLimit {
		if err := s.gotInterim(103, textproto.MIMEHeader{"Link": {"</x>"}}); err != nil {
			if held := len(s.in.data); n == 0 || held > bufferLimit {
				t.Errorf("%d bytes held after %d", held, n)
			}
			return
		}
	}
	t.Errorf("%d bytes are held", len(s.in.data))
}
