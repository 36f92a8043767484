package apierror

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Entry is one sign that an account is used up.
type Entry struct {
	// Sign is an error code, or a text that an error message contains. It is a text if it has a
	// space or a letter outside ASCII. The case of ASCII letters does not matter.
	Sign   string
	Vendor string
	Source string // where it is documented or was observed
}

// entries are the known signs. None of them means a rate limit. Rate limits have codes such as
// rate_limit_exceeded, but their messages may also name a quota or the billing page. Gemini says
// "You exceeded your current quota, please check your plan and billing details" about a limit per
// minute, so every text here is long enough not to match that.
var entries = [...]Entry{
	{"insufficient_quota", "OpenAI, Azure OpenAI", "OpenAI, \"Error codes\"; also the type of the next four"},
	{"credit_balance_exhausted", "OpenAI", "OpenAI help, \"Troubleshooting API usage and spend limits\""},
	{"organization_spend_limit_exceeded", "OpenAI", "OpenAI, \"Spend limits\""},
	{"project_spend_limit_exceeded", "OpenAI", "OpenAI, \"Spend limits\""},
	{"organization_usage_limit_exceeded", "OpenAI", "OpenAI help, \"Troubleshooting API usage and spend limits\""},
	{"billing_hard_limit_reached", "OpenAI", "image API: ai-wallpaper issue 2, \"400 Billing hard limit has been reached\""},
	{"billing_not_active", "OpenAI", "OpenAI, \"Error codes\""},

	{"billing_error", "Anthropic", "Anthropic, \"Errors\" (402)"},
	{"enforced_spend_limit_reached", "Anthropic", "Anthropic, \"Rate limits\" (429, `error.details.error_code`)"},
	{"credit balance is too low", "Anthropic", "claude-code issue 66314 (400)"},
	{"reached your specified api usage limits", "Anthropic", "claude-code issue 38035 (400)"},
	{"reached your specified workspace api usage limits", "Anthropic", "Anthropic, \"Rate limits\" (400)"},

	{"BILLING_DISABLED", "Google", "`google.api.ErrorReason`"},
	{"INSUFFICIENT_G1_CREDITS_BALANCE", "Google", "gemini-cli `googleQuotaErrors.ts`"},
	{"dailyLimitExceeded", "Google", "Google Calendar API, \"Handle API errors\" (403)"},

	{"out of call volume", "Azure", "Azure API Management, policy reference (403)"},

	{"used all available credits or reached its monthly spending limit", "xAI", "continue issue 10740 (429)"},
	{"insufficient balance", "DeepSeek, Z.ai, Moonshot", "aider issue 4851 (402), GLM-5 issue 148 (429)"},
	{"余额不足", "Zhipu", "continue issue 11823 (429, code 1113, \"balance insufficient\")"},
	{"已欠费", "Zhipu", "dify issue 5850 (429, code 1113, \"in arrears\")"},
	{"exceeded_current_quota_error", "Moonshot", "Kimi API, \"Error codes\" (429)"},
	{"Arrearage", "Alibaba", "supersonic issue 1572 (400)"},
	{"insufficient credits", "OpenRouter", "openclaude issue 43 (402)"},
	{"insufficient_credits", "gateways that speak OpenAI's API", "openclaude issue 1528 (402)"},
	{"exceeded your monthly included credits", "Hugging Face", "agents-course issue 386 (402)"},
	{"AccountOverdueError", "Volcengine", "coze-studio issue 2195 (403)"},
	{"AllocationQuota.FreeTierOnly", "Alibaba", "BettaFish issue 609 (403)"},
	{"INSUFFICIENT_BALANCE", "Venice, CSGHub, Sub2API", "Venice api-docs pull request 149 (402), sub2api issue 890 (403)"},
	{"budget_exceeded", "LiteLLM", "litellm pull request 4606 (429)"},
	{"usage_not_included", "OpenAI Codex", "codex-rs, errors of the Responses API (429)"},
	{"daily free allocation", "Cloudflare", "OmniRoute issue 6980 (429)"},
	{"insufficient_user_quota", "AiHubMix and others", "BettaFish issue 582 (403)"},
	{"account balance is insufficient", "AiHubMix", "BettaFish issue 582 (403)"},
	{"insufficient usd or diem balance", "Venice", "osaurus issue 2431 (402)"},
	{"credits have been used up", "Infron", "freebuff issue 934"},
	{"no credits remaining", "Continue", "continue issue 10098 (402)"},
	{"terminal_quota_exhausted", "LiteLLM", "hermes-agent pull request 106427 (429)"},
	{"over budget. spend=", "LiteLLM", "litellm `auth_checks.py` (400)"},
	{"SPEND_LIMIT_EXCEEDED", "Cline", "cline pull request 10207 (429)"},
	{"reached your session usage limit", "Ollama", "continue issue 11444 (429)"},
	{"reached your hourly usage limit", "Ollama", "continue issue 9233 (429)"},
	{"reached your weekly usage limit", "Ollama", "OmniRoute issue 3709 (429)"},
	{"api calls / month", "Cohere", "Cohere, \"Rate limits\": a trial key (429)"},
	{"requires billing to be enabled", "Google", "`google.api.ErrorReason` BILLING_DISABLED (403)"},
}

// tooLarge are the signs of a request that exceeds a limit by itself. Some of these errors are a 429, as
// if a wait could help.
var tooLarge = [...]Entry{
	{"must be reduced in order to run successfully", "OpenAI", "shell_gpt issue 653 (429)"},
	{"request too large for", "OpenAI, Groq", "shell_gpt issue 653 (429)"},
	{"reduce your message size and try again", "Groq", "the same, as a 413"},
	{"request_too_large", "Anthropic", "Anthropic, \"Errors\" (413)"},
	{"context_length_exceeded", "OpenAI", "OpenAI, \"Error codes\"; codex-rs `responses.rs`"},
	{"maximum context length", "OpenAI, vLLM", "vLLM `serving_engine.py`"},
	{"request requires more credits, or fewer max_tokens", "OpenRouter", "continue issue 11154 (402)"},
	{"string_above_max_length", "OpenAI", "OpenAI, \"Error codes\""},
}

// TooLargeEntries returns the signs of a request that exceeds a limit by itself. The slice belongs to
// the caller.
func TooLargeEntries() []Entry { return append([]Entry(nil), tooLarge[:]...) }

// isTooLarge reports whether value is a code of tooLarge, or a message with a text of it.
func (l *List) isTooLarge(value []byte, message bool) bool {
	if l.ignoresSize {
		return false
	}
	for i := range tooLarge {
		sign := tooLarge[i].Sign
		if message && strings.IndexByte(sign, ' ') >= 0 && indexFold(value, sign) >= 0 || !message && equalFold(value, sign) {
			return true
		}
	}
	return false
}

// Entries returns the known signs. The slice belongs to the caller.
func Entries() []Entry { return append([]Entry(nil), entries[:]...) }

// List is a list of signs to look for. It does not change after it was made and is safe for
// concurrent use.
type List struct {
	codes, texts []string // in lower case
	ignoresSize  bool     // of requests: tooLarge does not count
	ignoresRule  bool     // saysSpent does not count
	leftOut      []string // texts for which it does not count either
}

// usual is the list of Entries.
var usual = func() *List {
	l := new(List)
	for i := range entries {
		l.add(lower(entries[i].Sign))
	}
	return l
}()

// Usual returns the list of Entries.
func Usual() *List { return usual }

const (
	maxExtra = 64 // entries of a setting
	maxSign  = 64 // bytes of one
)

// ParseList parses a setting: signs to look for besides Entries, separated by commas. "!" before
// one of Entries removes it. An item is a text or a code, see Entry.Sign. White space around it is
// ignored. An empty setting returns Usual, and "none" a list that finds nothing.
func ParseList(s string) (*List, error) {
	switch lower(strings.TrimSpace(s)) {
	case "":
		return usual, nil
	case "none":
		return &List{ignoresSize: true, ignoresRule: true}, nil
	}
	items := strings.Split(s, ",")
	if len(items) > maxExtra {
		return nil, fmt.Errorf("%d entries; at most %d", len(items), maxExtra)
	}
	l := &List{codes: append([]string(nil), usual.codes...), texts: append([]string(nil), usual.texts...)}
	var errs []error
	for _, item := range items {
		sign, leaveOut := strings.CutPrefix(lower(strings.TrimSpace(item)), "!")
		switch {
		case sign == "":
			errs = append(errs, errors.New("an empty entry"))
		case len(sign) > maxSign:
			errs = append(errs, fmt.Errorf("%.20q... has %d bytes; at most %d", sign, len(sign), maxSign))
		case !utf8.ValidString(item) || strings.ContainsFunc(sign, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' || r == 0x7f }):
			errs = append(errs, fmt.Errorf("%q is not UTF-8, or has a quote, backslash or control character", sign))
		case leaveOut && !l.remove(sign):
			errs = append(errs, fmt.Errorf("%q is not in the list of docs/reference/retry-after.md, so ! cannot remove it", sign))
		case leaveOut:
			l.leftOut = append(l.leftOut, sign)
		case !leaveOut:
			l.add(sign)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return l, nil
}

// IsText reports whether sign is searched for in messages. Otherwise it is a code.
func IsText(sign string) bool {
	return strings.ContainsFunc(sign, func(r rune) bool { return r == ' ' || r >= utf8.RuneSelf })
}

func (l *List) of(sign string) *[]string {
	if IsText(sign) {
		return &l.texts
	}
	return &l.codes
}

// lower lowers ASCII letters only, to match equalFold.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r |= 0x20
		}
		return r
	}, s)
}

func (l *List) add(sign string) {
	l.remove(sign)
	all := l.of(sign)
	*all = append(*all, sign)
}

// remove removes sign and reports whether it was in the list.
func (l *List) remove(sign string) bool {
	all := l.of(sign)
	for i, s := range *all {
		if s == sign {
			*all = append((*all)[:i:i], (*all)[i+1:]...)
			return true
		}
	}
	return false
}

func (l *List) hasCode(value []byte) bool {
	for _, code := range l.codes {
		if equalFold(value, code) {
			return true
		}
	}
	return false
}

func (l *List) hasText(message []byte) bool {
	for _, text := range l.texts {
		if indexFold(message, text) >= 0 {
			return true
		}
	}
	return false
}
