package main

import (
	"github.com/spf13/cobra"

	"github.com/retryproxy/retryproxy/internal/config"
)

func convertCommand(o *outside) *cobra.Command {
	return &cobra.Command{
		Use:   "convert",
		Short: "print settings as a YAML configuration file",
		Long: `Prints the settings of the environment, and of the file that RETRYPROXY_CONFIG_FILE
names, as a YAML configuration file. 'retryproxy check' checks the values.`,
		RunE: func(*cobra.Command, []string) error {
			content, problems := config.YAML(o.env)
			if err := problems.Err(); err != nil {
				return err
			}
			_, err := o.stdout.Write(content)
			return err
		},
	}
}
