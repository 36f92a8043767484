package forward

import (
	"errors"
	"fmt"
	"strings"
)

// Check returns an error that joins all problems of the settings: values that would break
// the headers they are written into, or could never apply.
func (s *Settings) Check() error {
	var errs []error
	for _, h := range []string{s.HostName, s.UpstreamHost} {
		if !isAuthority(h) {
			errs = append(errs, &SettingError{"Host", fmt.Errorf("host %q: not host[:port]", h)})
		}
	}
	if s.Host == HostName && s.HostName == "" {
		errs = append(errs, &SettingError{"Host", errors.New("the host to send is empty")})
	}
	if why := checkPrefix(s.StripPrefix); why != "" {
		errs = append(errs, &SettingError{"StripPrefix", fmt.Errorf("strip prefix %q: %s", s.StripPrefix, why)})
	}
	return errors.Join(errs...)
}

// SettingError names the field of Settings that is wrong. Check joins them.
type SettingError struct {
	Setting string
	Err     error
}

// Error returns the text of the cause, which quotes the value.
func (e *SettingError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *SettingError) Unwrap() error { return e.Err }

// isAuthority reports whether s is harmless in a header; "" is allowed, and the caller
// decides about it.
func isAuthority(s string) bool {
	for i := range len(s) {
		if !isAlnum(s[i]) && strings.IndexByte("-._~:[]", s[i]) < 0 {
			return false
		}
	}
	return true
}

// checkPrefix returns what is wrong with a prefix, or "". Dots, empty segments and
// parameters would make every path below it ambiguous.
func checkPrefix(prefix string) string {
	if prefix == "" {
		return ""
	}
	if prefix[0] != '/' {
		return `it must begin with "/"`
	}
	for i := range len(prefix) {
		if c := prefix[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"<>?#\;*`, c) >= 0 {
			return fmt.Sprintf("%q cannot stand in it", string(rune(c)))
		}
	}
	lower := strings.ToLower(prefix)
	for _, code := range []string{"%2e", "%2f", "%5c", "%3b", "%25"} {
		if strings.Contains(lower, code) {
			return code + " cannot stand in it"
		}
	}
	for segment := range strings.SplitSeq(strings.TrimRight(prefix[1:], "/"), "/") {
		if segment == "." || segment == ".." || segment == "" && prefix != "/" {
			return "an empty segment or one of dots"
		}
	}
	return ""
}
