package http2

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// A stream that serves another request knows nothing of the one before: not its deadlines, its body, its trailers, its
// kind or its end.
func TestAStreamThatIsUsedAgainForgetsItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var streams []*Stream
		o := options(func(s *textStream) {
			streams = append(streams, s.Stream)
			if s.ID() > 1 && (s.Moved() > 0 || s.Trailers() != nil || s.IsGRPC() || s.HasBody() ||
				s.ClientGone() || s.HasUnread() || s.ResponseComplete()) {
				t.Errorf("request %d knows of the one before", s.ID())
			}
			if _, err := readHead(s); err != nil {
				t.Error(err)
				return
			}
			if s.ID() < 5 {
				defer func() { _ = s.SetDeadline(past) }()
			}
			if s.ID() == 1 {
				_, _ = io.ReadAll(io.LimitReader(s, 4))
			}
			select {
			case <-s.Done():
				t.Errorf("the client of request %d has left", s.ID())
			default:
			}
			_, _ = io.WriteString(s, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		})
		p := dialFrames(t, o)
		post := []string{":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/", "content-type", "application/grpc", "trailer", "x-t"}
		p.begin(false, post...)
		_ = p.WriteData(1, false, []byte("body, of which a part is not read"))
		p.headers(1, true, "x-t", "secret")
		p.want(`1: "ok" end`)
		synctest.Wait()
		p.begin(true, getFields...)
		p.want(`3: "ok" end`)
		synctest.Wait() // its worker has left the stream
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
		p.begin(true, getFields...)
		p.want(`5: "o"`)
		_ = p.WriteWindowUpdate(5, 1) // its write has waited
		p.want(`5: "k" end`)
		if len(streams) != 3 || streams[0] != streams[1] || streams[1] != streams[2] {
			t.Error("no stream was used again")
		}
		time.Sleep(time.Minute) // the streams that are free go
	})
}
