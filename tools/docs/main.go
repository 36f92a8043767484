// Command docs writes the parts of the documentation that follow from the code. `make docs` runs it
// in the repository's root; a test of package docs fails if they are not current.
package main

import (
	"fmt"
	"os"

	"github.com/retryproxy/retryproxy/internal/docs"
)

func main() {
	if err := docs.Write("."); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}
