package apierror

// credentials are the signs that a credential is not accepted: a key that was revoked, or an account
// that was closed. They mean something about an account only if the client did not send the credential.
var credentials = [...]Entry{
	{"invalid_api_key", "OpenAI, Groq, Alibaba", "OpenAI, \"Error codes\" (401)"},
	{"account_deactivated", "OpenAI", "one-api issue 271 (401)"},
	{"authentication_error", "Anthropic, DeepSeek, LiteLLM", "Anthropic, \"Errors\" (401); one-api `manage.go`"},
	{"organization has been disabled", "Anthropic", "claude-code issue 9384 (400)"},
	{"organization has been restricted", "Groq", "one-api issue 271 (400)"},
	{"API_KEY_INVALID", "Google", "`google.api.ErrorReason` (400)"},
	{"CONSUMER_SUSPENDED", "Google", "`google.api.ErrorReason` (403)"},
	{"api key expired", "Google", "continue issue 11336 (400)"},
	{"has been suspended", "Google", "`google.api.ErrorReason` CONSUMER_SUSPENDED (403)"},
	{"api key was reported as leaked", "Google", "continue issue 10513 (403)"},
	{"no auth credentials found", "OpenRouter", "Roo-Code issue 2445 (401)"},
	{"user not found", "OpenRouter", "openhuman issue 4074: a key that was revoked (401)"},
	{"invalid api key", "several", "openhuman issue 4074 (401)"},
	{"invalid or missing api key", "several", "openhuman issue 4074 (401)"},
	{"incorrect api key", "several", "openhuman issue 4074 (401)"},
}

// CredentialEntries returns the signs that a credential is not accepted. The slice belongs to the
// caller.
func CredentialEntries() []Entry { return append([]Entry(nil), credentials[:]...) }

// smaller are the signs that the account is good for a smaller request.
var smaller = [...]Entry{
	{"fewer max_tokens", "OpenRouter", "OpenRouter: \"requires more credits, or fewer max_tokens\" (402)"},
}

// permission are the signs that a credential is accepted, but may not do what one request asks for.
var permission = &List{texts: []string{"permission", "scope", "have access to", "not allowed to"}, ignoresSize: true, ignoresRule: true}

// Permission returns a list whose Verdict is UsedUp if the credential may serve other requests.
func Permission() *List { return permission }

// The lists of credentials and smaller. UsedUp of their verdicts means that a sign was found.
var (
	credentialList = listOf(credentials[:])
	smallerList    = listOf(smaller[:])
)

// Credentials returns the list of CredentialEntries: its Verdict is UsedUp if the body has one.
func Credentials() *List { return credentialList }

// Smaller returns a list whose Verdict is UsedUp if a smaller request would be served.
func Smaller() *List { return smallerList }

func listOf(entries []Entry) *List {
	l := &List{ignoresSize: true, ignoresRule: true}
	for i := range entries {
		l.add(lower(entries[i].Sign))
	}
	return l
}
