// The e2e.test command is Kubernetes' own end-to-end suites as far as they ask something of pods, of what pods mount and of storage
// drivers: without those that need a cloud's API. It has the flags of the suites' framework and of Ginkgo, and three of its own, by which
// a run goes on where it was ended.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"

	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	testingmanifests "k8s.io/kubernetes/test/e2e/testing-manifests"

	_ "k8s.io/kubernetes/test/e2e/common/node"
	_ "k8s.io/kubernetes/test/e2e/common/storage"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/storage/external"
)

const description = "suites"

var (
	list    = flag.Bool("list", false, "print the names of all specs, one a line, and run none")
	specs   = flag.String("specs", "", "a file with the names of the specs to run, one a line")
	results = flag.String("results", "", "a file to which a line of JSON is added for each of them as soon as it has ended")
)

// result is what is kept of a spec.
type result struct {
	Name    string  `json:"name"`
	State   string  `json:"state"`
	Seconds float64 `json:"seconds"`
	Message string  `json:"message,omitempty"`
}

// run is what Ginkgo tells that a spec has failed.
type run struct{ failed bool }

func (run *run) Fail() { run.failed = true }

func main() {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	testfiles.AddFileSource(testingmanifests.GetE2ETestingManifestsFS())
	framework.AfterReadingAllFlags(&framework.TestContext)
	gomega.RegisterFailHandler(framework.Fail)
	if *list {
		printNames()
		return
	}
	if err := runSpecs(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func printNames() {
	for _, spec := range ginkgo.PreviewSpecs(description).SpecReports {
		if spec.LeafNodeType == types.NodeTypeIt {
			fmt.Println(spec.FullText())
		}
	}
}

func runSpecs() error {
	focus, err := namesIn(*specs)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(*results, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	ginkgo.ReportAfterEach(func(spec ginkgo.SpecReport) { keep(file, spec) })
	suite, reporter := framework.CreateGinkgoConfig()
	suite.FocusStrings, suite.SkipStrings = focus, nil
	outcome := &run{}
	ginkgo.RunSpecs(outcome, description, suite, reporter)
	if outcome.failed {
		return fmt.Errorf("not all specs have passed")
	}
	return nil
}

// namesIn makes each line a pattern for the whole name: Ginkgo looks for patterns in the suite's description and the spec's name.
func namesIn(path string) ([]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var focus []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if name := lines.Text(); name != "" {
			focus = append(focus, "^"+regexp.QuoteMeta(description+" "+name)+"$")
		}
	}
	if len(focus) == 0 {
		return nil, fmt.Errorf("%s names no spec", path)
	}
	return focus, lines.Err()
}

// keep leaves out those that were not chosen: they have not taken place.
func keep(file *os.File, spec ginkgo.SpecReport) {
	if spec.LeafNodeType != types.NodeTypeIt || spec.NumAttempts == 0 {
		return
	}
	kept := result{spec.FullText(), spec.State.String(), spec.RunTime.Seconds(), spec.Failure.Message}
	line, err := json.Marshal(kept)
	if err == nil {
		_, err = file.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
