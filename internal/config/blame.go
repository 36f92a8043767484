package config

import (
	"errors"

	"github.com/retryproxy/retryproxy/proxy/certs"
	"github.com/retryproxy/retryproxy/proxy/forward"
)

func (b *builder) err() error {
	b.settings.Locate(b.problems)
	return b.problems.Err()
}

// These maps translate fields in errors of other packages to the keys of settings.
var (
	upstreamFiles = map[string]string{"CA": "UPSTREAM_CA", "Cert": "UPSTREAM_CERT", "Key": "UPSTREAM_KEY", "ServerName": "UPSTREAM_HOST"}
	listenerFiles = map[string]string{"Cert": "TLS_CERT", "Key": "TLS_KEY", "ClientCA": "TLS_CLIENT_CA"}
	forwarding    = map[string]string{"Host": "UPSTREAM_HOST", "StripPrefix": "STRIP_PREFIX"}
)

// note adds a problem of a route. key is the setting to blame unless the error names
// another one.
func (b *builder) note(r *Route, key string, err error) {
	for _, each := range joined(err) {
		var file *certs.FileError
		var field *forward.SettingError
		key, value := key, ""
		switch {
		case errors.As(each, &file):
			key, value = upstreamFiles[file.Field], file.File
			if key == "UPSTREAM_KEY" && r.UpstreamKey == "" { // it was to be with the certificate
				key, value = "UPSTREAM_CERT", r.UpstreamCert
			}
		case errors.As(each, &field):
			key = forwarding[field.Setting]
		}
		b.problems.add(Problem{Variable: r.Blame(key), Value: value, Message: each.Error()})
	}
}

// listenerTLS adds a problem with the files of the listener.
func (b *builder) listenerTLS(err error) {
	key, value := "TLS_CERT", ""
	var file *certs.FileError
	if errors.As(err, &file) {
		key, value = listenerFiles[file.Field], file.File
		if key == "TLS_KEY" && b.settings.TLSKey == "" {
			key, value = "TLS_CERT", b.settings.TLSCert
		}
	}
	b.problems.add(Problem{Variable: Prefix + key, Value: value, Message: err.Error()})
}
