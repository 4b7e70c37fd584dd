package storeclient

import (
	"context"
	"os/exec"
	"strings"
	"time"
)

// GitRevision returns the git revision of the checkout that contains a directory. It returns "" if the
// directory is not in a checkout, or the program git is missing.
func GitRevision(root string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	b, err := exec.CommandContext(ctx, "git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
