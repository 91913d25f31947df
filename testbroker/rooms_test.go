package testbroker_test

import (
	"go/parser"
	gotoken "go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module = "github.com/hubline-iot/hubline/"
	rooms  = module + "testbroker/internal/"
)

// protocols are the packages of one protocol; net/http includes all its subpackages.
var protocols = []string{
	module + "internal/amqpwire", "github.com/mochi-mqtt/server/v2", "github.com/gorilla/websocket", "net/http",
}

// mayImport lists the other internal packages and protocol packages that each internal package may
// import.
var mayImport = map[string][]string{
	"backend":   {rooms + "hub", rooms + "keep"},
	"document":  {rooms + "keep"},
	"edge":      {},
	"hubtest":   {rooms + "hub", module + "internal/amqpwire", "net/http", "github.com/gorilla/websocket"},
	"eventhub":  {},
	"faults":    {rooms + "keep"},
	"files":     {rooms + "keep"},
	"identity":  {rooms + "keep"},
	"keep":      {},
	"hub":       {rooms + "edge", rooms + "files", rooms + "keep"},
	"amqp":      {module + "internal/amqpwire"},
	"amqpfront": {rooms + "hub", rooms + "eventhub", rooms + "amqp", module + "internal/amqpwire"},
	"mqtt":      {},
	"mqttfront": {rooms + "hub", rooms + "keep", rooms + "mqtt"},
	"web":       {rooms + "hub", "net/http", "github.com/gorilla/websocket"},
	"httpfront": {rooms + "hub", rooms + "files", rooms + "updates", rooms + "web", "net/http"},
	"blobfront": {rooms + "hub", rooms + "files", rooms + "web", "net/http"},
	"query":     {},
	"notices":   {rooms + "keep"},
	"telemetry": {rooms + "eventhub", rooms + "keep"},
	"tpm2":      {},
	"dps":       {rooms + "hub", rooms + "keep", rooms + "tpm2", rooms + "updates"},
	"dpsfront": {rooms + "hub", rooms + "dps", rooms + "amqp", rooms + "mqtt", rooms + "web",
		module + "internal/amqpwire", "net/http"},
	"updates":      {rooms + "keep"},
	"servicefront": {rooms + "hub", rooms + "backend", rooms + "files", rooms + "query", rooms + "web", "net/http"},
}

func TestFrontsDependOnTheHubAlone(t *testing.T) {
	dirs, err := os.ReadDir("internal")
	require.NoError(t, err)
	var names []string
	for _, d := range dirs {
		names = append(names, d.Name())
	}
	require.Equal(t, slices.Sorted(maps.Keys(mayImport)), names)
	for name, allowed := range mayImport {
		for _, path := range importsOf(t, filepath.Join("internal", name)) {
			bound := strings.HasPrefix(path, rooms) ||
				slices.ContainsFunc(protocols, func(p string) bool { return within(path, p) })
			if path == rooms+"identity" || path == rooms+"faults" || path == rooms+"document" ||
				path == rooms+"telemetry" || path == rooms+"notices" {
				continue // the words of all rooms
			}
			if bound && !slices.ContainsFunc(allowed, func(p string) bool { return within(path, p) }) {
				t.Errorf("testbroker/internal/%s must not import %s", name, path)
			}
		}
	}
}

// Packages of data import nothing of the hub, so that a reader finds all of a type in one place.
func TestPackagesOfDataImportNoHub(t *testing.T) {
	data := module + "testbroker/"
	for name, allowed := range map[string][]string{
		"hubdata": {}, "fault": {data + "hubdata", data + "updatedata"}, "event": {data + "hubdata", data + "fault"},
		"dpsdata": {data + "hubdata"}, "updatedata": {},
	} {
		for _, path := range importsOf(t, name) {
			if strings.HasPrefix(path, module) && !slices.Contains(allowed, path) {
				t.Errorf("testbroker/%s must not import %s", name, path)
			}
		}
	}
}

// within reports whether a package equals parent or lies below it.
func within(path, parent string) bool { return path == parent || strings.HasPrefix(path, parent+"/") }

// importsOf returns the imports of a directory's code without its tests.
func importsOf(t *testing.T, dir string) []string {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var all []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(gotoken.NewFileSet(), name, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, i := range file.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			require.NoError(t, err)
			all = append(all, path)
		}
	}
	return all
}
