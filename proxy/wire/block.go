package wire

import "strconv"

// Header blocks are encoded without the dynamic table and without Huffman codes: both cost more time than
// the bytes that they save are worth next to a body. HAProxy does the same. So a block does not depend on its
// connection.

// indexOfStatus returns the index in the static table (RFC 7541 appendix A) of a status; 0: it has none.
func indexOfStatus(status int) byte {
	switch status {
	case 200:
		return 8
	case 204:
		return 9
	case 206:
		return 10
	case 304:
		return 11
	case 400:
		return 12
	case 404:
		return 13
	case 500:
		return 14
	}
	return 0
}

// indexOfName is the same for the names in responses. A switch costs a third of a map.
func indexOfName(lower []byte) byte {
	switch string(lower) {
	case "accept-ranges":
		return 18
	case "access-control-allow-origin":
		return 20
	case "age":
		return 21
	case "allow":
		return 22
	case "cache-control":
		return 24
	case "content-disposition":
		return 25
	case "content-encoding":
		return 26
	case "content-language":
		return 27
	case "content-length":
		return 28
	case "content-location":
		return 29
	case "content-range":
		return 30
	case "content-type":
		return 31
	case "date":
		return 33
	case "etag":
		return 34
	case "expires":
		return 36
	case "last-modified":
		return 44
	case "link":
		return 45
	case "location":
		return 46
	case "proxy-authenticate":
		return 48
	case "refresh":
		return 52
	case "retry-after":
		return 53
	case "server":
		return 54
	case "set-cookie":
		return 55
	case "strict-transport-security":
		return 56
	case "transfer-encoding":
		return 57
	case "vary":
		return 59
	case "via":
		return 60
	case "www-authenticate":
		return 61
	}
	return 0
}

const (
	indexStatus = 8 // of the name :status

	// Entries that requests begin with.
	indexAuthority = 1
	indexGet       = 2
	indexPost      = 3
	indexPath      = 4
	indexHTTP      = 6
	indexHTTPS     = 7
)

// AppendStatus appends the pseudo-header that a response begins with.
func AppendStatus(b []byte, status int) []byte {
	if i := indexOfStatus(status); i > 0 {
		return append(b, 0x80|i)
	}
	b = append(b, indexStatus, 3)
	return strconv.AppendInt(b, int64(status), 10)
}

// AppendRequestLine appends the pseudo-headers that a request begins with. authority may be empty.
func AppendRequestLine(b, method, target, authority []byte, secure bool) []byte {
	switch string(method) {
	case "GET":
		b = append(b, 0x80|indexGet)
	case "POST":
		b = append(b, 0x80|indexPost)
	default:
		b = appendString(append(b, indexGet), method)
	}
	if secure {
		b = append(b, 0x80|indexHTTPS)
	} else {
		b = append(b, 0x80|indexHTTP)
	}
	b = appendString(append(b, indexPath), target)
	if len(authority) > 0 {
		b = appendString(append(b, indexAuthority), authority)
	}
	return b
}

// appendField appends a literal field without indexing (RFC 7541 section 6.2.2). The name becomes lower case.
func appendField[V bytestring](b, name []byte, value V) []byte {
	var scratch [64]byte
	lower := appendLower(scratch[:0], name)
	if i := indexOfName(lower); i > 0 {
		b = appendInteger(b, 0, 4, int(i))
	} else {
		b = appendString(append(b, 0), lower)
	}
	return appendString(b, value)
}

// appendString appends a string without a Huffman code (RFC 7541 section 5.2).
func appendString[S bytestring](b []byte, s S) []byte {
	return append(appendInteger(b, 0, 7, len(s)), s...)
}

// appendInteger appends n with a prefix of some bits behind those of first (RFC 7541 section 5.1).
func appendInteger(b []byte, first byte, bits uint, n int) []byte {
	most := 1<<bits - 1
	if n < most {
		return append(b, first|byte(n))
	}
	b = append(b, first|byte(most))
	for n -= most; n >= 128; n >>= 7 {
		b = append(b, byte(n)|128)
	}
	return append(b, byte(n))
}

// appendLower appends name in lower case, which HTTP/2 requires.
func appendLower(dst, name []byte) []byte {
	n := len(dst)
	dst = append(dst, name...)
	for i, b := range dst[n:] {
		if 'A' <= b && b <= 'Z' {
			dst[n+i] = b + 'a' - 'A'
		}
	}
	return dst
}
