package main

import (
	_ "embed"
	"strings"
)

// ownedPackages are those of the middle floor: each of their fields has one owner.
var ownedPackages = []string{"proxy/attempt", "proxy/admission", "proxy/downstream", "proxy/request"}

//go:embed plain.txt
var plainText string

// plainTypes are the plain values of retryproxy.
var plainTypes = parsePlain(plainText)

// parsePlain reads names, one per line; # begins a comment.
func parsePlain(text string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, "#")
		if name = strings.TrimSpace(name); name != "" {
			names[name] = true
		}
	}
	return names
}
