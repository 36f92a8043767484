package main

import (
	"errors"

	"github.com/spf13/cobra"
)

var shells = []string{"bash", "zsh", "fish"}

func completionCommand(o *outside) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "print the script with which a shell completes commands and flags",
		Long: `Prints a script for the shell. The packages install it. Otherwise:

  source <(retryproxyctl completion bash)            # needs bash-completion
  retryproxyctl completion zsh >"${fpath[1]}/_retryproxyctl"
  retryproxyctl completion fish >~/.config/fish/completions/retryproxyctl.fish`,
		ValidArgs: shells,
		Args:      atMost(1),
		RunE: func(c *cobra.Command, args []string) error {
			switch root := c.Root(); append(args, "")[0] {
			case "bash":
				return root.GenBashCompletionV2(o.stdout, true)
			case "zsh":
				return root.GenZshCompletion(o.stdout)
			case "fish":
				return root.GenFishCompletion(o.stdout, true)
			}
			return wrong(c, errors.New("expected bash, zsh or fish"))
		},
	}
}
