package policy

import "strings"

// GRPCStatus is the status of a gRPC call (google.rpc.Code). The zero value is OK, and also
// stands for a response that is not gRPC.
type GRPCStatus uint8

// The statuses that this project sends or checks for.
const (
	GRPCOK                GRPCStatus = 0
	GRPCUnknown           GRPCStatus = 2
	GRPCDeadlineExceeded  GRPCStatus = 4
	GRPCPermissionDenied  GRPCStatus = 7
	GRPCResourceExhausted GRPCStatus = 8
	GRPCUnimplemented     GRPCStatus = 12
	GRPCInternal          GRPCStatus = 13
	GRPCUnavailable       GRPCStatus = 14
	GRPCUnauthenticated   GRPCStatus = 16
)

// grpcPrefix is the prefix of a gRPC status in a retry-on list.
const grpcPrefix = "grpc-"

// grpcNames maps a status to its name in the gRPC specification ("Status codes"), in lower
// case with hyphens.
var grpcNames = [...]string{
	"ok", "cancelled", "unknown", "invalid-argument", "deadline-exceeded", "not-found", "already-exists", "permission-denied",
	"resource-exhausted", "failed-precondition", "aborted", "out-of-range", "unimplemented", "internal", "unavailable", "data-loss",
	"unauthenticated",
}

// ParseGRPCStatus parses the value of grpc-status. A value that is no known status is
// parsed as unknown, as gRPC's own clients do.
func ParseGRPCStatus(value []byte) GRPCStatus {
	n := 0
	for _, c := range value {
		if c < '0' || c > '9' || n >= len(grpcNames) {
			return GRPCUnknown
		}
		n = n*10 + int(c-'0')
	}
	if len(value) == 0 || n >= len(grpcNames) {
		return GRPCUnknown
	}
	return GRPCStatus(n)
}

// String returns the name as in a retry-on list, without its prefix, or "invalid" for a
// value that is no status.
func (s GRPCStatus) String() string {
	if int(s) >= len(grpcNames) {
		return "invalid"
	}
	return grpcNames[s]
}

// HTTPStatus returns the HTTP status with the same meaning about the upstream, for code
// that judges by HTTP statuses. It is the reverse of gRPC's table "HTTP to gRPC Status Code
// Mapping". A failure of the call itself, such as not-found, returns 200.
func (s GRPCStatus) HTTPStatus() int {
	switch s {
	case GRPCUnavailable:
		return 503
	case GRPCResourceExhausted:
		return 429
	case GRPCDeadlineExceeded:
		return 504
	case GRPCUnknown, GRPCInternal, 15:
		return 500
	}
	return 200
}

// grpcSet is a set of statuses; it never contains OK.
type grpcSet uint32

func (g grpcSet) has(s GRPCStatus) bool { return s != GRPCOK && g>>s&1 == 1 }

// add adds the status with that name, without prefix, and reports whether there is one.
func (g *grpcSet) add(name string) bool {
	for s, have := range grpcNames {
		if s > 0 && have == name {
			*g |= 1 << s
			return true
		}
	}
	return false
}

// items appends the names, with their prefix, in the order of the statuses, to dst.
func (g grpcSet) items(dst []string) []string {
	for s := range GRPCStatus(len(grpcNames)) {
		if g.has(s) {
			dst = append(dst, grpcPrefix+s.String())
		}
	}
	return dst
}

// grpcChoices returns all names, for an error message.
func grpcChoices() string { return strings.Join(grpcNames[1:], ", ") }

// GRPC reports whether a response with this status is a failure.
func (r *RetryOn) GRPC(s GRPCStatus) bool { return r.grpc.has(s) }

// AnyGRPC reports whether some gRPC status is listed.
func (r *RetryOn) AnyGRPC() bool { return r.grpc != 0 }

// grpcOptsIn reports whether a is a call whose status is listed. Listing a gRPC status
// allows its retry: all gRPC calls are POST without an Idempotency-Key, so the entry would
// have no effect otherwise.
func (r *RetryOn) grpcOptsIn(res *Result) bool {
	return res.Cause == CauseStatus && r.grpc.has(res.GRPC)
}
