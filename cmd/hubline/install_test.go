package main

import (
	"debug/elf"
	"os"
	"os/exec"
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
	release    = "v0.1.0" // which this module requires of the root module
)

// outsider is a machine with Go, and with a repository in which release is tagged.
type outsider struct {
	t                  *testing.T
	folder, clone, hub string
	env                []string
}

// newOutsider copies this repository, as it is in the working tree. Git finds the copy under the
// public address. Other modules come from the module cache of this machine.
func newOutsider(t *testing.T) *outsider {
	t.Helper()
	folder := t.TempDir()
	o := &outsider{t: t, folder: folder, clone: filepath.Join(folder, "clone"), hub: filepath.Join(folder, "hub.git")}
	cache := strings.TrimSpace(o.run(".", "go", "env", "GOMODCACHE"))
	proxy := strings.TrimSpace(o.run(".", "go", "env", "GOPROXY")) // for what the module cache lacks
	top := strings.TrimSpace(o.run(".", "git", "rev-parse", "--show-toplevel"))
	o.env = append(os.Environ(),
		"GOPROXY="+fileURL(filepath.Join(cache, "cache", "download"))+","+proxy, "GOSUMDB=off", "GOTOOLCHAIN=local",
		"GOWORK=off", "GOPRIVATE="+rootModule, "CGO_ENABLED=0", "GOFLAGS=-modcacherw", "GOBIN=",
		"GOPATH="+filepath.Join(folder, "go"), "GOMODCACHE="+filepath.Join(folder, "go", "pkg", "mod"),
		"GIT_CONFIG_COUNT=3", "GIT_CONFIG_KEY_0=url."+fileURL(o.hub)+".insteadOf",
		"GIT_CONFIG_VALUE_0=https://"+rootModule, "GIT_CONFIG_KEY_1=user.name", "GIT_CONFIG_VALUE_1=Releaser",
		"GIT_CONFIG_KEY_2=user.email", "GIT_CONFIG_VALUE_2=releaser@example.com")
	o.run(folder, "git", "init", "-q", "--bare", o.hub)
	o.run(folder, "git", "init", "-q", "-b", "main", o.clone)
	o.run(o.clone, "git", "remote", "add", "origin", "https://"+rootModule)
	names := o.run(top, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	for name := range strings.SplitSeq(strings.TrimSuffix(names, "\x00"), "\x00") {
		o.copy(filepath.Join(top, name), filepath.Join(o.clone, name))
	}
	o.run(o.clone, "git", "add", "--all")
	o.run(o.clone, "git", "commit", "-q", "-m", "the working tree")
	return o
}

func fileURL(folder string) string {
	return "file:///" + strings.TrimPrefix(filepath.ToSlash(folder), "/")
}

func (o *outsider) copy(from, to string) {
	o.t.Helper()
	info, err := os.Stat(from)
	if os.IsNotExist(err) {
		return // deleted in the working tree
	}
	require.NoError(o.t, err)
	require.NoError(o.t, os.MkdirAll(filepath.Dir(to), 0o755))
	require.NoError(o.t, os.WriteFile(to, read(o.t, from), info.Mode()))
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

// The scripts of the release workflow tag a copy of the repository. Then everybody who has Go can
// install each program and import each module. The programs are static and as large as the page
// says.
func TestAReleaseCanBeInstalled(t *testing.T) {
	if os.Getenv("HUBLINE_INSTALL") == "" {
		t.Skip("it takes some minutes; HUBLINE_INSTALL=1 runs it")
	}
	o := newOutsider(t)
	o.run(o.clone, ".ci/release", release)
	tags := strings.Fields(o.run(o.hub, "git", "tag"))
	require.Equal(t, []string{"cloudevents/" + release, "cmd/fleet/" + release, "cmd/hubline/" + release,
		"observe/otel/" + release, "provisioning/dpstpm/" + release, release}, tags)
	require.Contains(t, o.run(o.hub, "git", "show", release+":CHANGELOG.md"), "\n## Unreleased\n\n## "+release+"\n")

	o.env = append(o.env, "SYSTEMS="+runtime.GOOS+"/"+runtime.GOARCH)
	o.run(o.clone, ".ci/binaries", release)
	dist := filepath.Join(o.clone, "dist")
	program := func(name string) string {
		return filepath.Join(dist, name+"-"+release+"-"+runtime.GOOS+"-"+runtime.GOARCH)
	}
	require.Contains(t, o.run(o.folder, program("hubline"), "-version"), "hubline version "+release)
	require.Contains(t, o.run(o.folder, program("testhub"), "-help"), "Usage of testhub")
	require.Contains(t, o.run(o.folder, program("fleet"), "-help"), "Usage of fleet")
	require.Equal(t, 3, strings.Count(string(read(t, filepath.Join(dist, "SHA256SUMS"))), "\n"))

	user := filepath.Join(o.folder, "user")
	require.NoError(t, os.Mkdir(user, 0o755))
	o.run(user, "go", "mod", "init", "example.com/user")
	o.run(user, "go", "get", rootModule+"/cloudevents@"+release, rootModule+"/observe/otel@"+release,
		rootModule+"/provisioning/dpstpm@"+release)
	require.Contains(t, o.run(user, "go", "list", "-m", rootModule), release)

	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Logf("the page has no size for %s/%s", runtime.GOOS, runtime.GOARCH)
		return
	}
	info, err := os.Stat(program("hubline"))
	require.NoError(t, err)
	said := regexp.MustCompile(`static binary of about (\S+) MB`).FindSubmatch(read(t, page))
	require.NotNil(t, said)
	megabytes, err := strconv.ParseFloat(string(said[1]), 64)
	require.NoError(t, err)
	require.InEpsilon(t, megabytes*1e6, info.Size(), 0.05, "the size on the page")
	for _, name := range []string{"hubline", "testhub", "fleet"} {
		requireStatic(t, program(name))
	}
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
