package swap_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/swap"
)

func ExampleFile() {
	path := filepath.Join(os.TempDir(), "gated.example")
	defer os.Remove(path)
	if err := os.WriteFile(path, []byte("version 1"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	file := &swap.File{
		Path:    path,
		Restart: swap.Command("systemctl", "restart", "gated"),
		Healthy: swap.HTTP("http://127.0.0.1:8080/ready"),
	}

	// The agent asks this first, for each step.
	for _, content := range []string{"version 1", "version 2"} {
		w := &agent.Work{Files: []agent.File{{SHA256: sha256.Sum256([]byte(content))}}}
		done, err := file.Installed(context.Background(), w)
		fmt.Println(content, "is installed:", done, err)
	}
	// Output:
	// version 1 is installed: true <nil>
	// version 2 is installed: false <nil>
}
