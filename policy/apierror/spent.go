package apierror

// The rule for an account that is used up in words that entries does not have: a sentence about money,
// and about its end. It is a guess, so any wait takes precedence.

// money and end are words, in lower case. Those of money stand alone or have an s.
var (
	money = [...]string{"credit", "balance", "fund", "spend", "spending", "prepaid", "prepayment", "invoice"}
	end   = [...]string{"insufficient", "not enough", "not have enough", "doesn't have enough", "not have any", "doesn't have any", "too low", "exhausted", "deplet", "used up", "used all",
		"ran out", "run out", "out of credit", "out of fund", "no credit", "exceeded", "exceeding", "reached", "reaching", "lack", "negative", "overdue", "past due", "unpaid", "suspended"}
	// rates are words of a sentence about a rate limit.
	rates = [...]string{"rate", "per minute", "per second", "/min", "/sec", "rpm", "tpm", "concurren", "retry", "try again", "max_tokens"}
)

// saysSpent reports whether a sentence of a message says by the rule that an account is used up. What a
// message quotes is not its own word: it may be a client's.
func saysSpent(v []byte) bool {
	for len(v) > 0 {
		one := v
		if at := firstEnd(v); at >= 0 {
			one = v[:at+1]
		}
		v = v[len(one):]
		if one = one[:unquoted(one)]; hasWord(one, money[:]) && hasAny(one, end[:]) && !hasAny(one, rates[:]) {
			return true
		}
	}
	return false
}

// unquoted returns how many bytes of b precede its first quote. An apostrophe is none.
func unquoted(b []byte) int {
	for i, c := range b {
		if c == '"' || c == '`' || c == '\'' && (i == 0 || !isAlnum(b[i-1])) {
			return i
		}
	}
	return len(b)
}

func hasAny(b []byte, texts []string) bool {
	for _, text := range texts {
		if indexFold(b, text) >= 0 {
			return true
		}
	}
	return false
}

// hasWord reports whether b has one of words that stands alone, or in the plural.
func hasWord(b []byte, words []string) bool {
	for _, word := range words {
		for rest := b; ; {
			at := indexFold(rest, word)
			if at < 0 {
				break
			}
			after := rest[at+len(word):]
			if len(after) > 0 && after[0]|0x20 == 's' {
				after = after[1:]
			}
			if (at == 0 || !inWord(rest[at-1])) && (len(after) == 0 || !inWord(after[0])) {
				return true
			}
			rest = rest[at+1:]
		}
	}
	return false
}

// inWord reports whether c is part of a word or of a code.
func inWord(c byte) bool { return isLetter(c) || c == '_' }
