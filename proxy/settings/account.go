package settings

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// credentials are the request headers by which an upstream knows an account: RFC 9110 section 11.6.2;
// Anthropic, ElevenLabs; Azure OpenAI; Gemini.
var credentials = [...]string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"}

// parts are the request headers that choose a part of an account: what is wrong with them is wrong for
// who sent them (openai-go `option`, Google Cloud "System parameters").
var parts = [...]string{"OpenAI-Organization", "OpenAI-Project", "X-Goog-User-Project"}

// accounts says how the accounts of a route's requests are known.
type accounts struct {
	seed      [sha256.Size]byte
	ofClients []string // the credentials that clients send, because the route does not set them
}

// accountsOf returns how the accounts of a route are known: by its upstream and by what it sets.
func accountsOf(r *Route) (a accounts) {
	a.seed = admission.Hash(sha256.Sum256([]byte("account\x00"+r.Upstream.String()+"\x00")), []byte(r.Forward.Changes.Lines()))
	for _, name := range credentials {
		if !r.Forward.Changes.Sets(name) {
			a.ofClients = append(a.ofClients, name)
		}
	}
	return a
}

// AccountKey returns what the requests of one account at the route's upstream have in common. It is a
// cryptographic hash: no client can make the key of another's account.
func (r *RouteState) AccountKey(req *http1.Request) uint64 {
	h := r.accounts.seed
	for _, name := range r.accounts.ofClients {
		value, _ := req.Lookup(name)
		h = admission.Hash(h, value)
	}
	for _, name := range parts {
		value, _ := req.Lookup(name)
		h = admission.Hash(h, value)
	}
	if bytes.Contains(req.Query, []byte("key=")) || bytes.Contains(req.Query, []byte("token=")) { // Gemini takes a key there
		h = admission.Hash(h, req.Query)
	}
	return binary.BigEndian.Uint64(h[:])
}

// OwnsAccount reports whether the route sets a credential, so that its account is not the client's.
func (r *RouteState) OwnsAccount() bool { return len(r.accounts.ofClients) < len(credentials) }
