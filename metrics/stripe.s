// Empty: without a file of assembly Go takes no functions that have no body, as in stripe.go.
