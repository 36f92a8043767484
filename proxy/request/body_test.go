package request_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/internal/requesttest"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// inChunks returns the body in chunks of that size.
func inChunks(body string, size int) string {
	var b strings.Builder
	for ; len(body) > size; body = body[size:] {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", size, body[:size])
	}
	if body != "" {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(body), body)
	}
	return b.String() + "0\r\n\r\n"
}

// text returns n bytes, no two parts of which are alike.
func text(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%d,", i)
	}
	return b.String()[:n]
}

// However it comes, a body is the same for each attempt, and its memory is given back.
func TestEachAttemptGetsTheSameBody(t *testing.T) {
	for _, size := range []int{1, 100, 4096, 17_000, 300_000} {
		body := text(size)
		for name, c := range map[string]*requesttest.Client{
			"with a length":              upload(t, size, nil),
			"with its headers":           begin(t, message("PUT", "/a", fmt.Sprintf("Content-Length: %d", size))+body, nil),
			"in chunks":                  chunked(t, nil),
			"in chunks with its headers": begin(t, message("PUT", "/a", "Transfer-Encoding: chunked")+inChunks(body, 7), nil),
		} {
			t.Run(fmt.Sprintf("%d %s", size, name), func(t *testing.T) {
				switch name {
				case "with a length":
					send(c, body)
				case "in chunks":
					send(c, inChunks(body, 1000))
				}
				for range 3 {
					wantAll(t, c, body)
					if !c.Body.AtEnd() || !c.Body.Ended() || c.Body.Total() != int64(size) || c.Body.Replay() != policy.ReplayWhole {
						t.Errorf("at the end %v, ended %v, %d bytes, replay %v", c.Body.AtEnd(), c.Body.Ended(), c.Body.Total(), c.Body.Replay())
					}
					c.Body.Rewind()
					if c.Body.AtEnd() || !c.Body.Ready() {
						t.Error("there is nothing to send again")
					}
				}
				if got := string(bytes.Join(c.Body.Kept(), nil)); got != body || !c.Body.Keeps() {
					t.Errorf("%d bytes are kept", len(got))
				}
				c.Body.Close()
				if used := c.Process.RetryBuffer.InUse(); used != 0 || len(c.Body.Kept()) > 0 {
					t.Errorf("%d bytes are still reserved", used)
				}
			})
		}
	}
}

// A body that is too large streams, and is not replayed.
func TestABodyBeyondTheCapPassesOnce(t *testing.T) {
	const size = 100_000
	small := func(c *settings.Config) { c.Default.RetryBufferBytes = size - 1 }
	exact := func(c *settings.Config) { c.Default.RetryBufferBytes = size }
	for _, tc := range []struct {
		name   string
		change func(c *settings.Config)
		want   policy.Replay
	}{{"beyond", small, policy.ReplayTooLarge}, {"up to", exact, policy.ReplayWhole}} {
		for kind, c := range map[string]*requesttest.Client{"length": upload(t, size, tc.change), "chunked": chunked(t, tc.change)} {
			if c.Body.Replay() != policy.ReplayWhole {
				t.Errorf("%s: nothing was read, and a replay is %v", kind, c.Body.Replay())
			}
			if kind == "length" {
				send(c, text(size))
			} else {
				send(c, inChunks(text(size), 5000))
			}
			wantAll(t, c, text(size))
			if got := c.Body.Replay(); got != tc.want || c.Body.Keeps() != (tc.want == policy.ReplayWhole) {
				t.Errorf("%s, %s the cap: replay %v, keeps %v", kind, tc.name, got, c.Body.Keeps())
			}
			if so := c.Body.ReplaySoFar(); tc.want != policy.ReplayWhole && so != tc.want {
				t.Errorf("%s: so far %v", kind, so)
			}
			c.Body.Close()
			if used := c.Process.RetryBuffer.InUse(); used != 0 {
				t.Errorf("%s: %d bytes are still reserved", kind, used)
			}
		}
	}
}

// The memory of the process is shared: who finds none left streams.
func TestABodyThatFindsNoMemoryPassesOnce(t *testing.T) {
	c := chunked(t, func(c *settings.Config) { c.RetryBufferTotalBytes = 40_000 })
	send(c, inChunks(text(100_000), 5000))
	wantAll(t, c, text(100_000))
	if got := c.Body.Replay(); got != policy.ReplayBufferFull {
		t.Errorf("replay %v", got)
	}
	if used := c.Process.RetryBuffer.InUse(); used > 40_000 {
		t.Errorf("%d bytes are reserved", used)
	}
	c.Body.Close()
	if used := c.Process.RetryBuffer.InUse(); used != 0 {
		t.Errorf("%d bytes are still reserved", used)
	}
}

// Many clients may open requests whose bodies do not come; what others need is not theirs.
func TestABodyThatIsAwaitedTakesNoRetryBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := upload(t, 10, nil)
		if _, err := c.Body.Next(time.Second); !rawsocket.IsTimeout(err) {
			t.Fatal(err)
		}
		if used := c.Process.RetryBuffer.InUse(); used != 0 {
			t.Errorf("it takes %d bytes", used)
		}
		send(c, "hello")
		if piece, err := c.Body.Next(0); string(piece) != "hello" || err != nil {
			t.Fatalf("%q, %v", piece, err)
		}
		if used := c.Process.RetryBuffer.InUse(); used == 0 {
			t.Error("what came takes nothing")
		}
		send(c, "world")
		c.Body.Rewind()
		wantAll(t, c, "helloworld")
	})
}

func TestTheRetryBufferIsNeverOverdrawn(t *testing.T) {
	b := request.RetryBuffer{Limit: 10}
	if !b.Take(6) || b.Take(5) || !b.Take(4) || b.Take(1) {
		t.Error("more than the limit, or less")
	}
	b.Give(4)
	if b.InUse() != 6 || !b.Take(4) {
		t.Errorf("%d are used", b.InUse())
	}
}

// What came so far cannot be replayed, but what will come may.
func TestABodyThatIsStillComing(t *testing.T) {
	c := upload(t, 10, nil)
	if c.Body.IsComplete() || c.Body.Ready() || c.Body.IsInMemory(10) || c.Body.Ended() {
		t.Error("nothing has come")
	}
	send(c, "hello")
	if piece, err := c.Body.Next(0); string(piece) != "hello" || err != nil {
		t.Fatalf("%q, %v", piece, err)
	}
	if c.Body.Replay() != policy.ReplayUnfinished || c.Body.ReplaySoFar() != policy.ReplayUnfinished || c.Body.AtEnd() || c.Body.Total() != 5 {
		t.Errorf("replay %v, at the end %v", c.Body.Replay(), c.Body.AtEnd())
	}
	c.Body.Rewind()
	send(c, "world")
	wantAll(t, c, "helloworld")
}

func TestWhichBodiesAreInMemory(t *testing.T) {
	length := func(n int, body string) string {
		return message("PUT", "/a", fmt.Sprintf("Content-Length: %d", n)) + body
	}
	for name, tc := range map[string]struct {
		text             string
		change           func(c *settings.Config)
		max              int64
		read             bool // to its end
		inMemory, itsAll bool
	}{
		"none":             {get(), nil, 0, false, true, true},
		"empty":            {length(0, ""), nil, 0, false, true, true},
		"here":             {length(5, "hello"), nil, 5, false, true, true},
		"larger than max":  {length(5, "hello"), nil, 4, false, false, true},
		"more is to come":  {length(6, "hello"), nil, 10, false, false, false},
		"beyond the cap":   {length(5, "hello"), func(c *settings.Config) { c.Default.RetryBufferBytes = 4 }, 10, false, false, true},
		"read":             {length(5, "hello"), nil, 5, true, true, true},
		"read and too big": {length(5, "hello"), nil, 4, true, false, true},
		"chunked":          {message("PUT", "/a", "Transfer-Encoding: chunked") + inChunks("hello", 5), nil, 5, false, false, false},
		"chunked and read": {message("PUT", "/a", "Transfer-Encoding: chunked") + inChunks("hello", 5), nil, 5, true, true, true},
	} {
		c := begin(t, tc.text, tc.change)
		if tc.read {
			if _, err := all(c); err != nil {
				t.Fatal(err)
			}
		}
		if got, whole := c.Body.IsInMemory(tc.max), c.Body.IsComplete(); got != tc.inMemory || whole != tc.itsAll {
			t.Errorf("%s: in memory %v, complete %v", name, got, whole)
		}
	}
}

func TestHowABodyFails(t *testing.T) {
	rate := func(c *settings.Config) { c.MinBodyRate, c.Default.BodyIdleTimeout = 1000, 0 }
	for name, tc := range map[string]struct {
		chunked bool
		change  func(c *settings.Config)
		client  func(c *requesttest.Client)
		wait    time.Duration
		want    error
		after   time.Duration
	}{
		"the client ends it":         {false, nil, func(c *requesttest.Client) { _ = c.Far.Close() }, 0, request.ErrBodyCut, 0},
		"the client ends the chunks": {true, nil, func(c *requesttest.Client) { _ = c.Far.Close() }, 0, request.ErrBodyCut, 0},
		"nothing comes":              {false, nil, nil, 0, request.ErrBodyTooSlow, 10 * time.Second},
		"nothing of chunks":          {true, nil, nil, 0, request.ErrBodyTooSlow, 10 * time.Second},
		"nothing comes so long":      {false, nil, nil, time.Second, nil, time.Second},
		"below the minimum rate":     {false, rate, nil, 0, request.ErrBodyTooSlow, 10 * time.Second},
		"others need the slot":       {false, nil, func(c *requesttest.Client) { c.Conn.TurnAway() }, 0, request.ErrTurnedAway, 0},
		"while it waits":             {false, nil, func(c *requesttest.Client) { time.AfterFunc(3*time.Second, c.Conn.TurnAway) }, 0, request.ErrTurnedAway, 3 * time.Second},
		"reading is stopped": {false, nil, func(c *requesttest.Client) {
			c.LendClient()
			time.AfterFunc(2*time.Second, c.InterruptClient)
		}, 0, attempt.ErrStopped, 2 * time.Second},
		"reading was stopped before": {false, nil, func(c *requesttest.Client) { c.LendClient(); c.InterruptClient() }, 0, attempt.ErrStopped, 0},
	} {
		t.Run(name, bubble(func(t *testing.T) {
			make := upload
			if tc.chunked {
				make = func(t *testing.T, _ int, change func(c *settings.Config)) *requesttest.Client {
					return chunked(t, change)
				}
			}
			c := make(t, 100, tc.change)
			if tc.client != nil {
				tc.client(c)
			}
			began := time.Now()
			piece, err := c.Body.Next(tc.wait)
			if len(piece) > 0 || !errors.Is(err, tc.want) && tc.want != nil || tc.want == nil && !rawsocket.IsTimeout(err) {
				t.Errorf("%q, %v; want %v", piece, err, tc.want)
			}
			if d := time.Since(began); d < tc.after || d > tc.after+time.Second {
				t.Errorf("after %v, want %v", d, tc.after)
			}
		}))
	}
}

// Who lost its slot after the end of one body keeps the next.
func TestALostSlotIsThatOfOneBody(t *testing.T) {
	c := upload(t, 5, nil)
	c.Conn.TurnAway()
	c.Body.Await(c.Time.Now())
	send(c, "hello")
	wantAll(t, c, "hello")
	c.Body.Arrived()
	if c.Body.IsAwaited() {
		t.Error("it is still awaited")
	}
}

// A body that just fits takes no more memory, whatever follows.
func TestABodyThatFillsTheCapStopsThere(t *testing.T) {
	const size = 20_000
	c := chunked(t, func(c *settings.Config) { c.Default.RetryBufferBytes = size })
	send(c, fmt.Sprintf("%x\r\n%s\r\n", size, text(size)))
	for c.Body.Total() < size {
		if _, err := c.Body.Next(0); err != nil {
			t.Fatal(err)
		}
	}
	if c.Body.Replay() != policy.ReplayUnfinished {
		t.Errorf("replay %v", c.Body.Replay())
	}
	used := c.Process.RetryBuffer.InUse()
	send(c, "1\r\nx\r\n0\r\n\r\n")
	if got, err := all(c); err != nil || got != "x" || c.Body.Replay() != policy.ReplayTooLarge {
		t.Errorf("%q, %v, replay %v", got, err, c.Body.Replay())
	}
	if now := c.Process.RetryBuffer.InUse(); now > used {
		t.Errorf("%d bytes became %d", used, now)
	}
}

// After a wait that ended without a byte, the body goes on.
func TestABodyGoesOnAfterAShortWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := upload(t, 5, nil)
		if _, err := c.Body.Next(time.Second); !rawsocket.IsTimeout(err) {
			t.Fatal(err)
		}
		send(c, "hello")
		wantAll(t, c, "hello")
	})
}

// The idle time begins anew with each byte; the minimum rate is an average with some grace.
func TestHowSlowABodyMayBe(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(c *settings.Config)
		each   time.Duration // between pieces of 100 bytes
		gRPC   bool
		lasts  time.Duration // until it fails; 0: it does not
	}{
		"within the idle time":           {nil, 9 * time.Second, false, 0},
		"beyond it":                      {nil, 11 * time.Second, false, 10 * time.Second},
		"beyond it, of gRPC":             {nil, 11 * time.Second, true, 0},
		"fast enough":                    {func(c *settings.Config) { c.MinBodyRate = 100 }, time.Second, false, 0},
		"too slow on average":            {func(c *settings.Config) { c.MinBodyRate = 100 }, 2 * time.Second, false, 18 * time.Second},
		"too slow, gRPC":                 {func(c *settings.Config) { c.MinBodyRate = 100 }, 2 * time.Second, true, 0},
		"slower, and any rate is enough": {nil, 2 * time.Second, false, 0},
	} {
		t.Run(name, bubble(func(t *testing.T) {
			c := upload(t, 5000, tc.change)
			c.GRPC = tc.gRPC
			go func() {
				for range 50 {
					time.Sleep(tc.each)
					if _, err := io.WriteString(c.Far, strings.Repeat("x", 100)); err != nil {
						return
					}
				}
			}()
			began := time.Now()
			_, err := all(c)
			if lasted := time.Since(began); (err != nil) != (tc.lasts > 0) || tc.lasts > 0 && (!errors.Is(err, request.ErrBodyTooSlow) || lasted < tc.lasts || lasted > tc.lasts+2*time.Second) {
				t.Errorf("%v after %v", err, lasted)
			}
			_ = c.Far.Close()
			time.Sleep(tc.each) // the client's goroutine ends
		}))
	}
}

// The time in which we did not read is not the client's.
func TestAPausedReaderDoesNotMakeAClientSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := upload(t, 200, func(c *settings.Config) { c.MinBodyRate, c.Default.BodyIdleTimeout = 100, 0 })
		send(c, strings.Repeat("x", 100))
		if _, err := c.Body.Next(0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		go func() { time.Sleep(5 * time.Second); _, _ = io.WriteString(c.Far, strings.Repeat("x", 100)) }()
		if _, err := c.Body.Next(0); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatIsNoChunkEndsTheBody(t *testing.T) {
	for text, want := range map[string]http1.Refusal{
		"zz\r\n": http1.RefusalBadChunk, "3\r\nabcd\r\n": http1.RefusalBadChunk, "0\r\nbad name: x\r\n\r\n": http1.RefusalBadTrailer,
		"3\r\nabc\r\nzz\r\n": http1.RefusalBadChunk,
	} {
		c := chunked(t, nil)
		send(c, text)
		if _, err := all(c); refusal(err) != want {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
}

func TestTrailersAreChangedLikeHeaders(t *testing.T) {
	c := begin(t, message("PUT", "/a", "Transfer-Encoding: chunked")+"1\r\nx\r\n0\r\nX-Sum: 1\r\nX-Secret: 2\r\n\r\n", func(c *settings.Config) {
		c.Default.Forward.Changes = forward.NewHeaderChanges(nil, []string{"X-Secret"})
	})
	wantAll(t, c, "x")
	if got := c.Body.Trailers(); len(got) != 1 || string(got[0].Name) != "X-Sum" || string(got[0].Value) != "1" {
		t.Errorf("%v", got)
	}
	if got := begin(t, get(), nil).Body.Trailers(); got != nil {
		t.Errorf("a request without a body has %v", got)
	}
}

// A wait for the upstream, or for a retry, is used to read the rest, as far as it may help.
func TestTheRestOfABodyIsReadForAReplay(t *testing.T) {
	for name, tc := range map[string]struct {
		each, within time.Duration // between pieces of 100 bytes of 1000; when reading ends, 0: never
		change       func(c *settings.Config)
		ended        bool
		lasts        time.Duration
		end          int32
	}{
		"all of it":                  {time.Second, 0, nil, true, 9 * time.Second, request.ClientPresent},
		"in time":                    {time.Second, 20 * time.Second, nil, true, 9 * time.Second, request.ClientPresent},
		"not in time":                {4 * time.Second, 20 * time.Second, nil, false, 2 * time.Second, request.ClientPresent},
		"no longer kept":             {time.Second, 0, func(c *settings.Config) { c.Default.RetryBufferBytes = 300 }, false, 0, request.ClientPresent},
		"slower than any body may":   {11 * time.Second, 0, nil, false, 10 * time.Second, request.ClientTooSlow},
		"the same, within its bound": {11 * time.Second, time.Hour, nil, false, 10 * time.Second, request.ClientPresent},
	} {
		t.Run(name, bubble(func(t *testing.T) {
			c := upload(t, 1000, tc.change)
			go func() {
				for range 10 {
					if _, err := io.WriteString(c.Far, strings.Repeat("x", 100)); err != nil {
						return
					}
					time.Sleep(tc.each)
				}
			}()
			if _, err := c.Body.Next(0); err != nil {
				t.Fatal(err)
			}
			c.Body.Await(c.Time.Now())
			until := c.Time.Now().Add(tc.within)
			if tc.within == 0 {
				until = 0
			}
			began := time.Now()
			c.FinishBody(until)
			if d := time.Since(began); c.Body.Ended() != tc.ended || d < tc.lasts || d > tc.lasts+2*time.Second || c.ClientEnd() != tc.end {
				t.Errorf("ended %v after %v, the client's end %d", c.Body.Ended(), d, c.ClientEnd())
			}
			if awaited := c.Body.IsAwaited(); awaited == tc.ended {
				t.Errorf("it is still awaited: %v", awaited)
			}
			_ = c.Far.Close()
			time.Sleep(tc.each) // the client's goroutine ends
		}))
	}
}

// A body of which nothing was sent yet is read whole if somebody needs it.
func TestABodyIsFetchedBeforeItIsSent(t *testing.T) {
	c := upload(t, 5, nil)
	send(c, "hello")
	c.FetchBody()
	if !c.Body.Ended() || c.Body.Total() != 5 {
		t.Errorf("%d bytes", c.Body.Total())
	}
	c.Body.Rewind()
	wantAll(t, c, "hello")
	large := upload(t, 5, func(c *settings.Config) { c.Default.RetryBufferBytes = 4 })
	large.FetchBody() // it would not be kept
	if large.Body.Total() != 0 {
		t.Error("a body that is not kept was read")
	}
	if large.Body.Replay() != policy.ReplayWhole {
		t.Error("a body of which nothing was read cannot be sent")
	}
}

func TestAClientThatBreaksItsBodyWhileItIsFetched(t *testing.T) {
	c := chunked(t, nil)
	send(c, "zz\r\n")
	c.FetchBody()
	if c.ClientEnd() != request.ClientBodyBroken || c.BodyRefusal() != http1.RefusalBadChunk || c.ClientStaysOn() {
		t.Errorf("%d, %v", c.ClientEnd(), c.BodyRefusal())
	}
}

// A layer that buffers cannot be asked without a wait.
func TestNothingMoreIsReadWithoutAWait(t *testing.T) {
	c := begin(t, message("PUT", "/a", "Content-Length: 10")+"hello", nil)
	if piece, err := c.Body.NextNow(); string(piece) != "hello" || err != nil {
		t.Errorf("%q, %v", piece, err)
	}
	send(c, "world")
	if piece, err := c.Body.NextNow(); len(piece) != 0 || err != nil {
		t.Errorf("%q, %v", piece, err)
	}
	c.Body.Rewind()
	wantAll(t, c, "helloworld")
	if _, err := c.Body.NextNow(); err != io.EOF {
		t.Errorf("at the end %v", err)
	}
}

func TestPiecesAreCountedWhileTheUpstreamIsAwaited(t *testing.T) {
	c := upload(t, 10, nil)
	send(c, "hello")
	if _, err := c.Body.Next(0); err != nil || c.Body.Pieces() != 0 {
		t.Errorf("%v, %d pieces", err, c.Body.Pieces())
	}
	c.LendClient()
	send(c, "world")
	if _, err := c.Body.Next(0); err != nil || c.Body.Pieces() != 1 {
		t.Errorf("%v, %d pieces", err, c.Body.Pieces())
	}
	c.InterruptClient()
	c.ReturnClient()
}

// After the loan, the client can be read again.
func TestTheClientIsReadAfterALoan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := upload(t, 5, nil)
		c.LendClient()
		gone := make(chan bool)
		go func() { gone <- c.WatchClient() }()
		time.Sleep(time.Minute)
		c.InterruptClient()
		if <-gone {
			t.Error("the client left")
		}
		c.ReturnClient()
		send(c, "hello")
		wantAll(t, c, "hello")
	})
}

func TestAClientThatLeavesIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := begin(t, get(), nil)
		c.LendClient()
		gone := make(chan bool)
		go func() { gone <- c.WatchClient() }()
		send(c, "GET /next") // it may send its next request early
		time.Sleep(time.Second)
		_ = c.Far.Close()
		if !<-gone {
			t.Error("nobody noticed")
		}
		if got := string(c.Conn.Peek()); got != "GET /next" {
			t.Errorf("%q is left of the next request", got)
		}
	})
}

// A second body of the connection has nothing of the first.
func TestTheNextBodyBeginsAnew(t *testing.T) {
	c := begin(t, message("PUT", "/a", "Content-Length: 10")+"hello", func(c *settings.Config) { c.Default.RetryBufferBytes = 9 })
	send(c, "world")
	wantAll(t, c, "helloworld")
	c.Body.Close()
	c.Next(message("PUT", "/a", "Content-Length: 3") + "abc")
	c.Prepare()
	if c.Body.Total() != 0 || c.Body.Ended() || c.Body.Replay() != policy.ReplayWhole || c.Body.Framing().Length != 3 {
		t.Errorf("%d bytes, ended %v, replay %v", c.Body.Total(), c.Body.Ended(), c.Body.Replay())
	}
	wantAll(t, c, "abc")
	if c.Body.Replay() != policy.ReplayWhole {
		t.Errorf("replay %v", c.Body.Replay())
	}
}
