package http1

import "strconv"

// bytestring is the type of names and values for the Append functions. They write them
// unchanged: the caller must make sure that they contain no CR, LF or NUL. Everything that
// Parse returns satisfies this.
type bytestring interface{ ~[]byte | ~string }

// AppendHeader appends `name: value CRLF`.
func AppendHeader[N, V bytestring](dst []byte, name N, value V) []byte {
	dst = append(dst, name...)
	dst = append(dst, ": "...)
	dst = append(dst, value...)
	return append(dst, "\r\n"...)
}

// AppendIntHeader appends `name: n CRLF` with n in decimal.
func AppendIntHeader[N bytestring](dst []byte, name N, n int64) []byte {
	dst = append(dst, name...)
	dst = append(dst, ": "...)
	return append(appendInt(dst, n), "\r\n"...)
}

// appendInt appends n in decimal. Header sections contain short numbers, for which it costs
// half of strconv.AppendInt.
func appendInt(dst []byte, n int64) []byte {
	if n < 0 {
		return strconv.AppendInt(dst, n, 10)
	}
	var digits [19]byte // of 2^63-1
	i := len(digits) - 1
	u := uint64(n)
	for ; u >= 10 && i > 0; i-- {
		digits[i] = byte('0' + u%10)
		u /= 10
	}
	digits[i] = byte('0' + u)
	return append(dst, digits[i:]...)
}

// AppendRequestLine appends `method SP target SP HTTP/1.1 CRLF`.
func AppendRequestLine[M, T bytestring](dst []byte, method M, target T) []byte {
	dst = append(dst, method...)
	dst = append(dst, ' ')
	dst = append(dst, target...)
	return append(dst, " HTTP/1.1\r\n"...)
}

// AppendStatusLine appends `HTTP/1.1 SP status SP phrase CRLF`. The space after the status
// stays if the phrase is empty (RFC 9112 section 4). status has three digits.
func AppendStatusLine[P bytestring](dst []byte, status int, phrase P) []byte {
	if status == 200 && string(phrase) == "OK" { // the usual case
		return append(dst, "HTTP/1.1 200 OK\r\n"...)
	}
	dst = append(dst, "HTTP/1.1 "...)
	dst = append(appendInt(dst, int64(status)), ' ')
	dst = append(dst, phrase...)
	return append(dst, "\r\n"...)
}

// AppendFraming appends the framing header that f needs: Content-Length, Transfer-Encoding,
// or nothing for BodyNone and BodyClose.
func AppendFraming(dst []byte, f Framing) []byte {
	switch f.Kind {
	case BodyLength:
		dst = append(dst, "Content-Length: "...)
		return append(appendInt(dst, f.Length), "\r\n"...)
	case BodyChunked:
		return append(dst, "Transfer-Encoding: chunked\r\n"...)
	}
	return dst
}

// AppendChunkSize appends the line before a chunk of n bytes: n in hexadecimal and CRLF.
// After the n bytes append CRLF. n must be above 0, since 0 would end the body.
func AppendChunkSize(dst []byte, n int64) []byte {
	dst = strconv.AppendInt(dst, n, 16)
	return append(dst, "\r\n"...)
}

// AppendChunk appends data as one chunk. Empty data appends nothing, since an empty chunk would end the body.
func AppendChunk(dst, data []byte) []byte {
	if len(data) == 0 {
		return dst
	}
	dst = AppendChunkSize(dst, int64(len(data)))
	dst = append(dst, data...)
	return append(dst, "\r\n"...)
}

// AppendLastChunk appends the last chunk, the trailer section and the empty line that ends it (RFC 9112 section 7.1).
// Trailers may be nil.
func AppendLastChunk(dst []byte, trailers []Header) []byte {
	dst = append(dst, "0\r\n"...)
	for i := range trailers {
		dst = trailers[i].AppendLine(dst)
	}
	return append(dst, "\r\n"...)
}
