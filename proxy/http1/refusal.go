package http1

// Refusal is why a message was refused. The set is closed; String is the metric label. The
// zero value means "not refused".
type Refusal uint8

// The refusals. Each has one status (Status) and one sentence (Explain). The proxy itself
// detects those of the last group. They are listed here so that all refusals of a request
// count in one place.
const (
	RefusalNone Refusal = iota

	RefusalTLSBytes
	RefusalBadRequestLine
	RefusalMethodTooLong
	RefusalBadVersion
	RefusalConnect
	RefusalBadTarget
	RefusalTargetTooLong
	RefusalBadStatusLine

	RefusalHeadersTooLarge
	RefusalTooManyHeaders
	RefusalBadHeader
	RefusalSpaceBeforeColon
	RefusalObsFold
	RefusalBareLF
	RefusalBareCR
	RefusalControlByte

	RefusalMissingHost
	RefusalDuplicateHost
	RefusalBadHost
	RefusalBadExpect

	RefusalCLWithTE
	RefusalBadContentLength
	RefusalDifferingContentLength
	RefusalBadTransferEncoding
	RefusalUnknownTransferEncoding
	RefusalTransferEncodingIn10
	RefusalBodyForbidden

	RefusalBadChunk
	RefusalChunkTooLarge
	RefusalChunkExtensions
	RefusalBadTrailer
	RefusalTrailersTooLarge

	RefusalAmbiguousPath
	RefusalTooManyFrames
	RefusalNoStreamSlot
	RefusalUnreadBody
	RefusalNoClientSlot
	RefusalOtherHost

	refusalCount
)

type refusalText struct {
	label   string
	status  int
	explain string
}

var refusals = [refusalCount]refusalText{
	RefusalNone: {"none", 0, "Not refused."},

	RefusalTLSBytes:       {"tls_bytes", 400, "The connection began with a TLS handshake where plain HTTP is spoken."},
	RefusalBadRequestLine: {"bad_request_line", 400, "The request line is not `method SP target SP HTTP/x.y CRLF` (RFC 9112 section 3)."},
	RefusalMethodTooLong:  {"method_too_long", 501, "The method is longer than any method in use (RFC 9112 section 3)."},
	RefusalBadVersion:     {"bad_version", 505, "The major version of HTTP is not 1 (RFC 9110 section 15.6.6)."},
	RefusalConnect:        {"connect", 501, "CONNECT asks for a tunnel, and requests in a tunnel cannot be retried. Send requests for http:// URLs and set an https upstream instead (RFC 9110 section 9.3.6)."},
	RefusalBadTarget:      {"bad_target", 400, "The request target has a fragment, illegal bytes, a broken escape or a form that does not fit the method (RFC 9112 section 3.2)."},
	RefusalTargetTooLong:  {"target_too_long", 414, "The request line alone is longer than the limit for headers (RFC 9112 section 3)."},
	RefusalBadStatusLine:  {"bad_status_line", 400, "The status line is not `HTTP/1.x SP code [SP phrase] CRLF` with a code from 100 to 999 (RFC 9112 section 4)."},

	RefusalHeadersTooLarge:  {"header_too_large", 431, "The headers are longer than the limit (RFC 6585 section 5)."},
	RefusalTooManyHeaders:   {"too_many_headers", 431, "There are more headers than the limit (RFC 6585 section 5)."},
	RefusalBadHeader:        {"bad_header", 400, "A header has no colon, an empty name or a name that is not a token, or imitates a framing header with underscores (RFC 9112 section 5)."},
	RefusalSpaceBeforeColon: {"space_before_colon", 400, "White space stands between the name of a header and its colon (RFC 9112 section 5.1)."},
	RefusalObsFold:          {"obs_fold", 400, "A line begins with white space: obsolete folding (RFC 9112 section 5.2), or space before the first header (section 2.2)."},
	RefusalBareLF:           {"bare_lf", 400, "A line ends with LF without CR (RFC 9112 section 2.2)."},
	RefusalBareCR:           {"bare_cr", 400, "A CR is not followed by LF (RFC 9112 section 2.2)."},
	RefusalControlByte:      {"control_byte", 400, "A header or phrase has NUL, DEL or another control byte (RFC 9110 section 5.5)."},

	RefusalMissingHost:   {"missing_host", 400, "An HTTP/1.1 request without Host (RFC 9112 section 3.2)."},
	RefusalDuplicateHost: {"duplicate_host", 400, "More than one Host header (RFC 9112 section 3.2)."},
	RefusalBadHost:       {"bad_host", 400, "The Host value is not `name[:port]`, or it is empty beside a target with an authority (RFC 9112 section 3.2)."},
	RefusalBadExpect:     {"bad_expect", 417, "Expect is not 100-continue (RFC 9110 section 10.1.1)."},

	RefusalCLWithTE:                {"cl_with_te", 400, "Content-Length and Transfer-Encoding in one message (RFC 9112 section 6.1)."},
	RefusalBadContentLength:        {"bad_content_length", 400, "Content-Length is not a plain decimal number below 2^63 (RFC 9112 section 6.3)."},
	RefusalDifferingContentLength:  {"repeated_content_length", 400, "Content-Length headers that differ (RFC 9112 section 6.3)."},
	RefusalBadTransferEncoding:     {"bad_transfer_encoding", 400, "Transfer-Encoding does not end with exactly one chunked without parameters (RFC 9112 section 6.3)."},
	RefusalUnknownTransferEncoding: {"unknown_transfer_encoding", 501, "A transfer coding other than chunked, which is the only one implemented (RFC 9112 section 6.1)."},
	RefusalTransferEncodingIn10:    {"transfer_encoding_in_http_1_0", 400, "Transfer-Encoding in an HTTP/1.0 message (RFC 9112 section 6.1)."},
	RefusalBodyForbidden:           {"body_forbidden", 400, "An interim (1xx) response announces a body (RFC 9110 section 15.2)."},

	RefusalBadChunk:         {"bad_chunk", 400, "A chunk size is not hexadecimal, or chunk data is not followed by CRLF (RFC 9112 section 7.1)."},
	RefusalChunkTooLarge:    {"chunk_too_large", 400, "A chunk size has more than 16 digits or does not fit 63 bits (RFC 9112 section 7.1)."},
	RefusalChunkExtensions:  {"chunk_extensions", 400, "Chunk extensions longer than the limit, or out of proportion to the data (RFC 9112 section 7.1.1)."},
	RefusalBadTrailer:       {"bad_trailer", 400, "A trailer breaks the rules for headers (RFC 9112 section 7.1.2)."},
	RefusalTrailersTooLarge: {"trailers_too_large", 431, "The trailers have more bytes or lines than the limit (RFC 9112 section 7.1.2)."},

	RefusalAmbiguousPath: {"ambiguous_path", 400, "Normalising the path could change the route or a stripped prefix."},
	RefusalTooManyFrames: {"too_many_frames", 400, "An HTTP/2 client sent more frames without a request than any client needs. Its connection is read slowly, and closed with GOAWAY after 5 s (RFC 9113 section 10.5). Each such connection is counted once, and there is no response."},
	RefusalNoStreamSlot:  {"no_stream_slot", 503, "HTTP/2 clients had as many requests in flight as descriptors or memory allow, and no request ended within a second."},
	RefusalUnreadBody:    {"unread_body", 503, "The memory for unread bodies ran out, and the upstream had left the body of this HTTP/2 request unread for the longest time."},
	RefusalNoClientSlot:  {"no_client_slot", 503, "All client slots were in use (descriptors or memory limit them), and this client had sent and read fewer bytes than the others, or no memory was left for its request body."},
	RefusalOtherHost:     {"other_host", 403, "A client with http_proxy asked for a host, port or scheme that is neither the upstream nor the HOST of any route."},
}

// String returns the label of the refusal in metrics and logs: lower case words joined by underscores.
func (r Refusal) String() string {
	if r >= refusalCount {
		return "unknown"
	}
	return refusals[r].label
}

// Status returns the status code of the response to a request refused for r; 0 for
// RefusalNone.
func (r Refusal) Status() int {
	if r >= refusalCount {
		return 400
	}
	return refusals[r].status
}

// Explain returns one sentence for people: what was wrong, with the section that forbids
// it.
func (r Refusal) Explain() string {
	if r >= refusalCount {
		return "Unknown refusal."
	}
	return refusals[r].explain
}

// Err returns r as an error with the status for a request. All calls for one r return the
// same pointer, so it does not allocate.
func (r Refusal) Err() *Error {
	if r >= refusalCount {
		r = RefusalBadHeader
	}
	return &requestErrors[r]
}

// AllRefusals returns every refusal except RefusalNone, in a fixed order. The slice belongs
// to the caller.
func AllRefusals() []Refusal {
	all := make([]Refusal, 0, refusalCount-1)
	for r := RefusalNone + 1; r < refusalCount; r++ {
		all = append(all, r)
	}
	return all
}

// Error is the error of every refused message. Values are shared: do not change them.
type Error struct {
	// Status is the status that the client should get: the refusal's own for a request
	// header section and for chunked bodies, 502 for a response header section. A Chunked
	// does not know its side: for a response body, use 502 instead.
	Status int
	// Reason is the first rule that was broken, in the order of the bytes if that is well
	// defined.
	Reason Refusal
}

// Error returns the label and the sentence of the refusal. It never contains bytes of the
// message.
func (e *Error) Error() string {
	return "http1: " + e.Reason.String() + ": " + e.Reason.Explain()
}

var requestErrors, responseErrors = errorTables()

func errorTables() (request, response [refusalCount]Error) {
	for r := range refusalCount {
		request[r] = Error{Status: refusals[r].status, Reason: r}
		response[r] = Error{Status: 502, Reason: r}
	}
	return request, response
}
