package storeclient

import (
	"context"
	"os/exec"
	"strings"
	"time"
)

// GitRevision is that of the checkout that a directory is in; "": it is in none, or there is no git.
func GitRevision(root string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	b, err := exec.CommandContext(ctx, "git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
