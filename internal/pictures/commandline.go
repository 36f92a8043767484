package pictures

import (
	"slices"
	"strings"
)

// switches lists the flags of plan and simulate without a value.
var switches = []string{"json", "stay"}

// CommandLine returns the command line that prints the same as JSON, without the flags for
// pictures.
func CommandLine(name string, args []string) []string {
	line := []string{"retryproxy", name}
	for i := 0; i < len(args); i++ {
		flag, _, joined := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		takes := !joined && !slices.Contains(switches, flag) && i+1 < len(args)
		switch {
		case !strings.HasPrefix(args[i], "-") || flag == "json":
			continue
		case flag == "png" || flag == "svg" || flag == "size":
			if takes {
				i++
			}
			continue
		}
		line = append(line, args[i])
		if takes {
			i++
			line = append(line, args[i])
		}
	}
	return append(line, "--json")
}
