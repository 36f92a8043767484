package policy

import (
	"strings"
	"testing"
)

func TestGRPCStatusIsRead(t *testing.T) {
	for in, want := range map[string]GRPCStatus{
		"0": 0, "14": GRPCUnavailable, "8": GRPCResourceExhausted, "16": 16, "007": 7,
		"17": GRPCUnknown, "": GRPCUnknown, "-1": GRPCUnknown, "x": GRPCUnknown, "99999999999999999999": GRPCUnknown, "1 ": GRPCUnknown,
	} {
		if got := ParseGRPCStatus([]byte(in)); got != want {
			t.Errorf("%q: %d, want %d", in, got, want)
		}
	}
}

func TestRetryOnGRPCStatuses(t *testing.T) {
	r := mustRetryOn(t, "grpc-unavailable, grpc-resource-exhausted")
	for s := range GRPCStatus(20) {
		want := s == GRPCUnavailable || s == GRPCResourceExhausted
		if got := r.matches(&Result{Status: 200, GRPC: s}); got != want || r.GRPC(s) != want {
			t.Errorf("%v: failure %v, want %v", s, got, want)
		}
	}
	if !r.AnyGRPC() || !r.Cause(CauseStatus) || r.String() != "grpc-resource-exhausted,grpc-unavailable" {
		t.Errorf("%v", r.String())
	}
	plain := mustRetryOn(t, usualRetryOn)
	if plain.AnyGRPC() || plain.matches(&Result{Status: 200, GRPC: GRPCUnavailable}) {
		t.Error("a gRPC status is a failure though none is listed")
	}
	all := mustRetryOn(t, grpcPrefix+strings.Join(grpcNames[1:], ","+grpcPrefix))
	for s := GRPCStatus(1); int(s) < len(grpcNames); s++ {
		if !all.GRPC(s) {
			t.Errorf("%v cannot be listed", s)
		}
	}
	for _, in := range []string{"grpc-ok", "grpc-", "grpc-14", "grpc-UNAVAILABLE", "grpc-deadline_exceeded"} {
		if _, err := ParseRetryOn(in); err == nil || !strings.Contains(err.Error(), "unauthenticated") {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestGRPCStatusAsHTTPStatus(t *testing.T) {
	for s, want := range map[GRPCStatus]int{0: 200, 5: 200, 14: 503, 8: 429, 4: 504, 13: 500, 2: 500, 15: 500, 3: 200} {
		if got := s.HTTPStatus(); got != want {
			t.Errorf("%v: %d, want %d", s, got, want)
		}
	}
	if GRPCStatus(17).String() != "invalid" {
		t.Error("there is no status 17")
	}
}
