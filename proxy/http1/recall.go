package http1

var (
	requestMemories  [memories]requestMemory
	responseMemories [memories]responseMemory
)

// requestMemory knows a request line, and a field section that may have come with another one. What was concluded from the section
// depends on the version besides, and for Authority on the form.
type requestMemory struct {
	memory
	line     lineMemory
	minor    int
	body     Framing
	close    bool
	expect   bool
	trailers bool
	hopNames bool
}

// recall takes over what is known, when the field section at b[i:] is the same again. Else n is 0.
func (m *requestMemory) recall(r *Request, b []byte, i, maxFields int) (n int) {
	if m.minor != r.Minor || !m.comesAgain(b, i, maxFields) {
		return 0
	}
	m.hit()
	r.Fields = m.fields(r.Fields, b[i:])
	if r.Form != Absolute {
		r.Authority = r.Get(Host)
	}
	r.Body, r.Close, r.ExpectContinue = m.body, m.close, m.expect
	r.TrailersOK, r.HopNames = m.trailers, m.hopNames
	return i + m.size
}

// note remembers r with its field section, unless it asks for an upgrade, which is the last request of its connection.
func (m *requestMemory) note(r *Request, section []byte) {
	if r.Upgrade != nil || !m.ends() || !m.keep(section, r.Fields) {
		return
	}
	m.minor, m.body, m.close, m.expect = r.Minor, r.Body, r.Close, r.ExpectContinue
	m.trailers, m.hopNames = r.TrailersOK, r.HopNames
}

// lineMemory knows a request line with a target of the origin form.
type lineMemory struct {
	patience
	text   [128]byte
	size   int // of text; 0: there is none
	method int // its length
	path   int // where it ends
	target int // where it ends: beyond path, when there is a query
	minor  int
}

// recall takes over what is known, when the request line at b[i:] is the same again. Else next is 0.
func (m *lineMemory) recall(r *Request, b []byte, i int) (next int) {
	next = i + m.size
	if m.size == 0 || next > len(b) || string(b[i:next]) != string(m.text[:m.size]) {
		return 0
	}
	m.hit()
	line := b[i:next]
	r.Method, r.Target = line[:m.method:m.method], line[m.method+1:m.target:m.target]
	r.Path, r.Minor = line[m.method+1:m.path:m.path], m.minor
	if r.HasQuery = m.path < m.target; r.HasQuery {
		r.Query = line[m.path+1 : m.target : m.target]
	}
	return next
}

// note remembers the line that was read into r.
func (m *lineMemory) note(r *Request, line []byte) {
	if len(line) > len(m.text) || r.Form != Origin || !m.ends() {
		return
	}
	m.size, m.method, m.minor = copy(m.text[:], line), len(r.Method), r.Minor
	m.path = m.method + 1 + len(r.Path)
	m.target = m.method + 1 + len(r.Target)
}

// responseMemory knows a whole head. What was concluded from it depends on nothing besides but whether it answers to HEAD.
type responseMemory struct {
	memory
	head      bool
	phraseEnd int
	said      Response // without spans
}

// recall takes over what is known, when the head is the same again. Else n is 0.
func (m *responseMemory) recall(r *Response, b []byte, maxFields int, head bool) (n int) {
	if m.head != head || !m.comesAgain(b, 0, maxFields) {
		return 0
	}
	m.hit()
	fields, place := r.Fields, r.place
	*r = m.said
	r.Fields, r.Phrase, r.place = m.fields(fields, b), b[phraseAt:m.phraseEnd:m.phraseEnd], place
	return m.size
}

// note remembers r with its head, for one that answers to HEAD or not, unless the connection changes its protocol with it.
func (m *responseMemory) note(r *Response, text []byte, head bool) {
	if r.Upgrade != nil || !m.ends() || !m.keep(text, r.Fields) {
		return
	}
	m.head, m.said, m.phraseEnd = head, *r, phraseAt+len(r.Phrase)
	m.said.Fields, m.said.Phrase = nil, nil
}
