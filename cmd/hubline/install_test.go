package main

import (
	"archive/zip"
	"debug/elf"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	rootModule = "github.com/hubline-iot/hubline"
	ownModule  = rootModule + "/cmd/hubline"
	release    = "v0.1.0" // which this module requires of the root module
)

// outsider is a machine with Go and without this repository.
type outsider struct {
	t      *testing.T
	folder string
	env    []string
}

// newOutsider makes a proxy for modules that has this repository's, as they are in the working
// tree. The others come from the module cache of this machine, by files, too.
func newOutsider(t *testing.T) *outsider {
	t.Helper()
	folder := t.TempDir()
	proxy := filepath.Join(folder, "proxy")
	serveModule(t, proxy, rootModule, "../..")
	serveModule(t, proxy, ownModule, ".")
	o := &outsider{t: t, folder: folder}
	cache := strings.TrimSpace(o.run(".", "go", "env", "GOMODCACHE"))
	o.env = append(os.Environ(),
		"GOPROXY="+fileURL(proxy)+","+fileURL(filepath.Join(cache, "cache", "download")),
		"GOSUMDB=off", "GOTOOLCHAIN=local", "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-modcacherw",
		"GOPATH="+filepath.Join(folder, "go"), "GOMODCACHE="+filepath.Join(folder, "go", "pkg", "mod"), "GOBIN=")
	return o
}

func fileURL(folder string) string {
	return "file:///" + strings.TrimPrefix(filepath.ToSlash(folder), "/")
}

// serveModule puts a module into a proxy of files.
func serveModule(t *testing.T, proxy, module, folder string) {
	t.Helper()
	at := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	require.NoError(t, os.MkdirAll(at, 0o755))
	for name, text := range map[string][]byte{
		"list": []byte(release + "\n"), release + ".info": []byte(`{"Version":"` + release + `"}`),
		release + ".mod": read(t, filepath.Join(folder, "go.mod")),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(at, name), text, 0o644))
	}
	file, err := os.Create(filepath.Join(at, release+".zip"))
	require.NoError(t, err)
	archive := zip.NewWriter(file)
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard")
	list.Dir = folder
	out, err := list.Output()
	require.NoError(t, err)
	names := strings.Fields(string(out))
	for _, name := range ofModule(names) {
		text, err := os.ReadFile(filepath.Join(folder, filepath.FromSlash(name)))
		if os.IsNotExist(err) {
			continue // deleted in the working tree
		}
		require.NoError(t, err)
		entry, err := archive.Create(module + "@" + release + "/" + name)
		require.NoError(t, err)
		_, err = entry.Write(text)
		require.NoError(t, err)
	}
	require.NoError(t, archive.Close())
	require.NoError(t, file.Close())
}

// ofModule returns the files that are in no module below.
func ofModule(names []string) (own []string) {
	nested := map[string]bool{}
	for _, name := range names {
		if folder := path.Dir(name); path.Base(name) == "go.mod" && folder != "." {
			nested[folder] = true
		}
	}
	for _, name := range names {
		folder := path.Dir(name)
		for folder != "." && !nested[folder] {
			folder = path.Dir(folder)
		}
		if folder == "." {
			own = append(own, name)
		}
	}
	return own
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return text
}

func (o *outsider) run(folder, name string, args ...string) string {
	o.t.Helper()
	command := exec.CommandContext(o.t.Context(), name, args...)
	command.Dir, command.Env = folder, o.env
	out, err := command.CombinedOutput()
	require.NoError(o.t, err, string(out))
	return string(out)
}

// Somebody who has Go alone installs this command and runs testhub, by the lines of the pages. The
// program is static and as large as the page says.
func TestAnOutsiderInstalls(t *testing.T) {
	if os.Getenv("HUBLINE_INSTALL") == "" {
		t.Skip("it takes up to a minute; HUBLINE_INSTALL=1 runs it")
	}
	o := newOutsider(t)
	o.run(o.folder, "go", "install", "-trimpath", "-ldflags=-s -w", ownModule+"@latest")
	program := filepath.Join(o.folder, "go", "bin", "hubline")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	require.Contains(t, o.run(o.folder, program, "-version"), "hubline version "+release)
	require.Contains(t, o.run(o.folder, "go", "run", "-trimpath", rootModule+"/cmd/testhub@latest", "-help"),
		"Usage of testhub")

	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Logf("the page has no size for %s/%s", runtime.GOOS, runtime.GOARCH)
		return
	}
	info, err := os.Stat(program)
	require.NoError(t, err)
	said := regexp.MustCompile(`static binary of about (\S+) MB`).FindSubmatch(read(t, page))
	require.NotNil(t, said)
	megabytes, err := strconv.ParseFloat(string(said[1]), 64)
	require.NoError(t, err)
	require.InEpsilon(t, megabytes*1e6, info.Size(), 0.05, "the size on the page")
	requireStatic(t, program)
}

// requireStatic fails for a program that needs a loader or libraries.
func requireStatic(t *testing.T, program string) {
	t.Helper()
	file, err := elf.Open(program)
	require.NoError(t, err)
	defer file.Close()
	for _, part := range file.Progs {
		require.NotEqual(t, elf.PT_INTERP, part.Type, "it needs a loader")
	}
	libraries, err := file.ImportedLibraries()
	require.NoError(t, err)
	require.Empty(t, libraries)
}
