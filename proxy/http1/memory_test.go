package http1

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

// Places for tests: one whose memories are empty when a test begins, and one whose memories are in use as long as it runs.
const (
	ownPlace   place = 7
	takenPlace place = 9
)

// takeMemories has the memories of takenPlace in use during a test, so that what is at that place reads each head anew. All of both places
// are emptied.
func takeMemories(t testing.TB) {
	t.Helper()
	p := takenPlace
	request, response := &requestMemories[p.index()], &responseMemories[p.index()]
	if !request.claim() || !response.claim() {
		t.Fatal("the memories are in use")
	}
	t.Cleanup(func() {
		request.release()
		response.release()
	})
	request.size, request.line.size, response.size = 0, 0, 0
	p = ownPlace
	requestMemories[p.index()], responseMemories[p.index()] = requestMemory{}, responseMemory{}
}

// reading is one call of Parse with all the bytes so far.
type reading struct {
	buf    []byte
	lim    Limits
	method string
	absent bool // the head is given up afterwards
}

// remembering parses heads with a Request and a Response that remember, and each again with new ones that do not.
type remembering struct {
	t                     *testing.T
	request, freshRequest Request
	answer, freshAnswer   Response
}

func newRemembering(t *testing.T) *remembering {
	t.Helper()
	takeMemories(t)
	return &remembering{
		t: t, request: Request{place: ownPlace}, answer: Response{place: ownPlace},
		freshRequest: Request{place: takenPlace}, freshAnswer: Response{place: takenPlace},
	}
}

// read holds that memory makes no difference, for bytes taken as a request and as a response.
func (m *remembering) read(k reading) {
	m.t.Helper()
	n, err := m.request.Parse(k.buf, k.lim)
	n2, err2 := m.freshRequest.Parse(k.buf, k.lim)
	if n != n2 || err != err2 {
		m.t.Fatalf("request %q: %d %v, read anew %d %v", k.buf, n, err, n2, err2)
	}
	m.compare(k.buf, m.request, m.freshRequest)
	if n > 0 || err != nil || k.absent {
		m.freshRequest = Request{place: takenPlace}
	}
	if k.absent {
		m.request.Reset()
	}
	n, err = m.answer.Parse(k.buf, k.lim, []byte(k.method))
	n2, err2 = m.freshAnswer.Parse(k.buf, k.lim, []byte(k.method))
	if n != n2 || err != err2 {
		m.t.Fatalf("response %q: %d %v, read anew %d %v", k.buf, n, err, n2, err2)
	}
	m.compare(k.buf, m.answer, m.freshAnswer)
	if n > 0 || err != nil || k.absent {
		m.freshAnswer = Response{place: takenPlace}
	}
	if k.absent {
		m.answer.Reset()
	}
}

// compare compares all fields of two heads but their places. Spans have to be the same memory.
func (m *remembering) compare(buf []byte, a, b any) {
	m.t.Helper()
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		same := false
		switch x.Field(i).Type() {
		case reflect.TypeFor[place]():
			same = true
		case reflect.TypeFor[[]byte]():
			same = sameSpan(x.Field(i).Bytes(), y.Field(i).Bytes())
		case reflect.TypeFor[[]Field]():
			same = slices.EqualFunc(x.Field(i).Interface().([]Field), y.Field(i).Interface().([]Field), equalSpans)
		default:
			same = x.Field(i).Equal(y.Field(i))
		}
		if !same {
			m.t.Fatalf("%s of %q: %v, read anew %v", x.Type().Field(i).Name, buf, x.Field(i), y.Field(i))
		}
	}
}

// sameSpan reports whether two spans are one. Where one without capacity begins says nothing.
func sameSpan(a, b []byte) bool {
	if cap(a) == 0 && cap(b) == 0 {
		return (a == nil) == (b == nil)
	}
	return unsafe.SliceData(a) == unsafe.SliceData(b) && len(a) == len(b) && cap(a) == cap(b)
}

func equalSpans(a, b Field) bool {
	return a.ID == b.ID && sameSpan(a.Name, b.Name) && sameSpan(a.Value, b.Value)
}

// A sequence of heads reads the same with memory and without, whatever came before, in pieces, with other limits or another method.
// Each byte of steps is one head: a or b as it is or with one byte changed, cut or whole.
func FuzzMemory(f *testing.F) {
	twice := []byte{0, 0, 0, 1, 1, 1, 0, 2, 0, 4, 0, 8, 0, 16, 0, 32, 0, 64, 0, 128, 0, 1, 33, 1, 37, 1, 255, 1}
	for _, c := range acceptedRequests {
		f.Add([]byte(c.head), []byte(typicalRequest), twice, uint16(len(c.head)-3))
	}
	for _, c := range refusedRequests {
		f.Add([]byte(c.head), []byte(typicalRequest), twice, uint16(20))
	}
	for _, c := range acceptedResponses {
		f.Add([]byte(c.head), []byte(typicalResponse), twice, uint16(len(c.head)-3))
	}
	for _, c := range refusedResponses {
		f.Add([]byte(c.head), []byte(typicalResponse), twice, uint16(12))
	}
	for _, p := range memoryPairs {
		f.Add([]byte(p.first), []byte(p.second), twice, uint16(30))
	}
	f.Fuzz(func(t *testing.T, a, b, steps []byte, at uint16) {
		if len(a) > 2*memoryBytes || len(b) > 2*memoryBytes {
			return // it says nothing more, and takes long
		}
		m := newRemembering(t)
		for i, s := range steps[:min(len(steps), 100)] {
			m.step(s, bytes.Clone([][]byte{a, b}[s&1]), int(at)+i/8)
		}
	})
}

func (m *remembering) step(s byte, head []byte, at int) {
	k := reading{buf: head, method: "GET"}
	if s&2 != 0 {
		k.method = "HEAD"
	}
	if s&4 != 0 && len(head) > 0 {
		head[at%len(head)] ^= 1 << (at % 8)
	}
	if s&8 != 0 {
		k.lim.Fields = 1 + at%8
	}
	if s&16 != 0 {
		k.lim.HeadBytes = len(head) - 1 + at%3
	}
	if s&32 != 0 {
		cut := k
		cut.buf, cut.absent = head[:at%(len(head)+1)], s&64 != 0
		m.read(cut)
	}
	if s&128 != 0 {
		k.buf = append(k.buf, head...)
	}
	m.read(k)
	if s&128 == 0 {
		m.request.Reset()
		m.freshRequest, m.freshAnswer = Request{place: takenPlace}, Response{place: takenPlace}
		m.answer.Reset()
	}
}

// memoryPairs are heads of which the second could be taken for the first where not all that matters is compared.
var memoryPairs = []struct{ first, second, method string }{
	{first: "GET / HTTP/1.1\r\nHost: a\r\n\r\n", second: "GET / HTTP/1.0\r\nHost: a\r\n\r\n"},
	{first: "GET / HTTP/1.0\r\nHost: a\r\n\r\n", second: "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
	{first: "GET / HTTP/1.0\r\nX: a\r\n\r\n", second: "GET / HTTP/1.1\r\nX: a\r\n\r\n"},
	{first: "GET / HTTP/1.0\r\n\r\n", second: "GET / HTTP/1.1\r\n\r\n"},
	{first: "GET / HTTP/1.1\r\nHost: a\r\n\r\n", second: "GET http://b/c HTTP/1.1\r\nHost: a\r\n\r\n"},
	{first: "GET http://b/c HTTP/1.1\r\nHost: a\r\n\r\n", second: "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
	{first: "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", second: "OPTIONS /* HTTP/1.1\r\nHost: a\r\n\r\n"},
	{first: "GET /a?b HTTP/1.1\r\nHost: a\r\n\r\n", second: "GET /a HTTP/1.1\r\nHost: a\r\n\r\n"},
	{first: "GET /a? HTTP/1.1\r\nHost: a\r\n\r\n", second: "GET /a HTTP/1.1\r\nHost: a\r\n\r\n"},
	{first: "GET /a HTTP/1.1\r\nHost: a\r\n\r\n", second: "GET /a HTTP/1.1\r\nHost: a\r\nX: b\r\n\r\n"},
	{first: "GET /a HTTP/1.1\r\nHost: a\r\nX: b\r\n\r\n", second: "GET /a HTTP/1.1\r\nHost: a\r\n\r\nX: b\r\n\r\n"},
	{first: "PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", second: "PUT /a HTTP/1.0\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"},
	{first: "GET /a HTTP/1.1\r\nHost: a\r\nUpgrade: b\r\nConnection: upgrade, x\r\nTE: trailers\r\n\r\n", second: "GET /a HTTP/1.0\r\nHost: a\r\nUpgrade: b\r\nConnection: upgrade, x\r\nTE: trailers\r\n\r\n"},
	{first: "GET /a HTTP/1.1\r\nHost:\t a\t\r\nX:\r\nY:  \t\r\n\r\n", second: "GET /a HTTP/1.1\r\nHost:\t a\t \r\nX:\r\nY: \t\r\n\r\n"},
	{first: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", second: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", method: "HEAD"},
	{first: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", second: "HTTP/1.1 204 OK\r\nContent-Length: 5\r\n\r\n"},
	{first: "HTTP/1.1 200 OK\r\nA: b\r\n\r\n", second: "HTTP/1.0 200 OK\r\nA: b\r\n\r\n"},
	{first: "HTTP/1.1 200\r\nA: b\r\n\r\n", second: "HTTP/1.1 200 \r\nA: b\r\n\r\n"},
	{first: "HTTP/1.1 101 S\r\nUpgrade: a\r\nConnection: upgrade\r\n\r\n", second: "HTTP/1.1 101 S\r\nUpgrade: a\r\nConnection: upgrade\r\n\r\n"},
	{first: "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5\r\nConnection: x\r\n\r\n", second: "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=6\r\nConnection: x\r\n\r\n"},
}

func TestMemoryHeedsAllThatMatters(t *testing.T) {
	for _, p := range memoryPairs {
		t.Run("", func(t *testing.T) {
			m := newRemembering(t)
			for range 3 {
				m.read(reading{buf: []byte(p.first), method: "GET"})
			}
			m.read(reading{buf: []byte(p.second), method: p.method})
			m.read(reading{buf: []byte(p.first), method: p.method})
		})
	}
}

func TestMemoryHoldsTheLimits(t *testing.T) {
	m := newRemembering(t)
	for _, head := range []string{typicalRequest, typicalResponse} {
		for _, lim := range []Limits{{}, {}, {Fields: 8}, {Fields: 7}, {HeadBytes: len(head)}, {HeadBytes: len(head) - 1}, {}} {
			m.read(reading{buf: []byte(head), lim: lim, method: "GET"})
		}
	}
}

// What comes again is recalled, and not read.
func TestWhatComesAgainIsRecalled(t *testing.T) {
	m := newRemembering(t)
	request, response := &requestMemories[m.request.place.index()], &responseMemories[m.answer.place.index()]
	for range 2 {
		m.read(reading{buf: []byte(typicalRequest), method: "GET"})
		m.read(reading{buf: []byte(typicalResponse), method: "GET"})
	}
	if !request.used || !request.line.used || !response.used {
		t.Fatalf("recalled: fields %v, request line %v, response %v", request.used, request.line.used, response.used)
	}
	taken := m.freshRequest.place.index()
	if requestMemories[taken].size != 0 || requestMemories[taken].line.size != 0 || responseMemories[taken].size != 0 {
		t.Error("a memory was used that another one has in use")
	}
	m.read(reading{buf: []byte(strings.Replace(typicalRequest, "budget", "quotas", 1)), method: "GET"})
	if request.misses != 0 || request.line.used {
		t.Error("with another target the same fields were read, or the line was not")
	}
}

func TestLargeHeadsAreNotRemembered(t *testing.T) {
	many := strings.Repeat("A: b\r\n", memoryFields+1)
	long := "A: " + strings.Repeat("b", memoryBytes) + "\r\n"
	m := newRemembering(t)
	for _, fields := range []string{many, long} {
		for _, head := range []string{"GET / HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n", "HTTP/1.1 200 OK\r\n" + fields + "\r\n"} {
			for range 3 {
				m.read(reading{buf: []byte(head), method: "GET"})
			}
		}
	}
	line := "GET /" + strings.Repeat("a", len(lineMemory{}.text)) + " HTTP/1.1\r\nHost: a\r\n"
	for range 3 {
		m.read(reading{buf: []byte(line + many + "\r\n"), method: "GET"})
	}
	i := m.request.place.index()
	if requestMemories[i].size != 0 || responseMemories[i].size != 0 {
		t.Error("a head is remembered that has no room")
	}
}

// Several that share a memory wait for nobody and get nothing of each other's.
func TestMemoryIsSharedWithoutMixing(t *testing.T) {
	var all sync.WaitGroup
	for k := range 4 {
		all.Go(func() {
			name := strings.Repeat(string(rune('a'+k)), 5)
			head := []byte("GET /" + name + " HTTP/1.1\r\nHost: " + name + "\r\nX-" + name + ": 1\r\n\r\n")
			answer := []byte("HTTP/1.1 200 " + name + "\r\nX-" + name + ": 1\r\nContent-Length: 5\r\n\r\n")
			r, a := Request{place: ownPlace}, Response{place: ownPlace}
			for range 2000 {
				if n, err := r.Parse(head, Limits{}); n != len(head) || err != nil || string(r.Path) != "/"+name || string(r.Authority) != name || string(r.Fields[1].Name) != "X-"+name {
					t.Errorf("%d, %v, %q, %q", n, err, r.Path, r.Authority)
					return
				}
				if n, err := a.Parse(answer, Limits{}, nil); n != len(answer) || err != nil || string(a.Phrase) != name || string(a.Fields[0].Name) != "X-"+name {
					t.Errorf("%d, %v, %q", n, err, a.Phrase)
					return
				}
			}
		})
	}
	all.Wait()
}

// What was of use is given up at the first miss, what was of none after ever more of them.
func TestPatience(t *testing.T) {
	var p patience
	var kept []int
	for miss := range 200 {
		if p.ends() {
			kept = append(kept, miss)
		}
	}
	if want := []int{0, 1, 4, 11, 26, 57, 120, 183}; !slices.Equal(kept, want) {
		t.Errorf("without use remembered anew at the misses %v, want %v", kept, want)
	}
	p.hit()
	for !p.ends() {
	}
	p.hit()
	if !p.ends() {
		t.Error("what was of use is kept at a miss")
	}
}
