package config

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// Limits of the admin token: a shorter one can be guessed, a longer one is probably another file.
const (
	minAdminToken = 16
	maxAdminToken = 4096
)

// AdminToken returns the token in the file of ADMIN_TOKEN_FILE, without surrounding space. It reads
// the file each time, so a new token applies at once. It returns an error if the file cannot be
// read, or if the token has fewer than 16 or more than 4096 bytes.
func AdminToken(file string) (string, error) {
	text, err := readAtMost(file, maxAdminToken+1)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if len(text) > maxAdminToken || len(token) < minAdminToken {
		return "", fmt.Errorf("the file must have a token of %d to %d bytes", minAdminToken, maxAdminToken)
	}
	return token, nil
}

// readAtMost returns the first n bytes of a file, which may be a device.
func readAtMost(file string, n int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return io.ReadAll(io.LimitReader(f, n))
}
