package apierror

import (
	"strings"
	"testing"
	"time"
)

// What the list does not know about an account that is used up follows from words about money and its
// end, unless there is a wait.
func TestWordsAboutMoney(t *testing.T) {
	for _, message := range []string{
		"Your prepayment credits are depleted. Please go to AI Studio to manage your project and billing.",             // Gemini, dyad issue 3626
		"Account a is suspended, possibly due to reaching the monthly spending limit or failure to pay past invoices.", // Fireworks, pollinations issue 12136
		"Your project has exceeded its monthly spending cap.",
		"Your newly created team doesn't have any credits or licenses yet.",
		"Your organization does not have enough balance to request this action",
		"You lack sufficient credits to make this request.",
		"Please wait. INSUFFICIENT FUNDS",
	} {
		if v := read(Usual(), messageBody(t, message)); v != (Verdict{Exhausted: true, UsedUp: true, Guessed: true}) {
			t.Errorf("%s: %+v", message, v)
		}
		none, err := ParseList("none")
		if err != nil || read(none, messageBody(t, message)).UsedUp {
			t.Errorf("%s: found although none are looked for, %v", message, err)
		}
		if v := read(Usual(), messageBody(t, message+" Try again in 5s.")); v != (Verdict{Wait: 5 * time.Second, HasWait: true}) {
			t.Errorf("%s with a wait: %+v", message, v)
		}
	}
	for _, message := range []string{
		"You exceeded your current quota, please check your plan and billing details.", // Gemini, of a limit per minute
		"Rate limit reached. Please add a payment method to your account to increase your rate limit.",
		"Rate limit exceeded for your credit tier", "Limit of 5 requests per minute exceeded: buy credits",
		"Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model requests per day", // OpenRouter
		"The load balancer exceeded its timeout", "thinking.budget_tokens exceeded max_tokens", "the code credit_balance_exhausted",
		"Invalid value: 'my balance is exhausted'", "The model \"no credits\" was exhausted", "Your credits are fine. The context is exhausted",
	} {
		if v := read(Usual(), messageBody(t, message)); v != (Verdict{}) {
			t.Errorf("%s: %+v", message, v)
		}
	}
}

// When an account is renewed that is used up is known if the body states it as a time, or after words
// that only mean that.
func TestWhenAnAccountIsRenewed(t *testing.T) {
	for message, want := range map[string]time.Duration{
		"Your credit balance is too low. You will regain access on 2026-03-01 at 12:01 UTC.": time.Minute,
		"Out of call volume quota. Quota will be replenished in 01:12:00.":                   72 * time.Minute,
		"Your credit balance is too low until the limit is renewed on 2026-03-01 12:00:30":   30 * time.Second,
		"Your credit balance is too low for the 30 days of your limit":                       0,
		"Your credit balance is too low":                                                     0,
	} {
		if v := read(Usual(), messageBody(t, message)); v != (Verdict{Exhausted: true, UsedUp: true, Renewed: want}) {
			t.Errorf("%s: %+v, want %v", message, v, want)
		}
	}
}

// Escapes of JSON do not hide a sign or a wait.
func TestEscapedTexts(t *testing.T) {
	for body, want := range map[string]Verdict{
		`{"message":"\u4f59\u989d\u4e0d\u8db3"}`:                                                 {Exhausted: true, UsedUp: true},
		`{"message":"\u8bf7 30 \u79d2\u540e\u91cd\u8bd5"}`:                                       {Wait: 30 * time.Second, HasWait: true, Guessed: true},
		`{"message":"Try again\u0020in 5\u0073"}`:                                                {Wait: 5 * time.Second, HasWait: true},
		`{"message":"\u12 \ud83d\ude00 \q try again in 5s"}`:                                     {Wait: 5 * time.Second, HasWait: true},
		`{"message":"` + strings.Repeat(`\n`, maxMessages) + `try again in 5s"}`:                 {},
		`{"message":"` + strings.Repeat(`\u4f59`, 200) + `", "error":"try again in 5s, or so."}`: {Wait: 5 * time.Second, HasWait: true},
	} {
		if v := read(Usual(), []byte(body)); v != want {
			t.Errorf("%.60s: %+v, want %+v", body, v, want)
		}
	}
}
