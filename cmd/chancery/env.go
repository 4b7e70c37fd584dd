package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// variable is the environment variable that stands for a flag.
func variable(flag string) string {
	return "CHANCERY_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// bind gives each flag that is not on the command line the value of its
// variable. An empty variable is none. Variables of no flag are passed over:
// Kubernetes sets CHANCERY_SERVICE_HOST and more for a service of that name.
func bind(cmd *cobra.Command, _ []string) error {
	var first error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value := os.Getenv(variable(f.Name))
		if f.Changed || value == "" || f.Name == "help" || first != nil {
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			first = fmt.Errorf("environment variable %s: %w", variable(f.Name), wrongValue(err))
		}
	})
	return first
}
