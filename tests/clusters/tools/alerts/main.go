// Evaluates alerting rules as Prometheus does: `alerts RULES` with situations as JSON on standard input, each a name, series in
// the notation of Prometheus' own tests, and how long they last. Prints for each the alerts that fire at its end.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const interval = time.Minute

type situation struct {
	Name   string   `json:"name"`
	Series []string `json:"series"`
	Lasts  int      `json:"minutes"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: alerts RULES <situations")
		os.Exit(64)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(file string) error {
	var situations []situation
	if err := json.NewDecoder(os.Stdin).Decode(&situations); err != nil {
		return err
	}
	found := map[string][]string{}
	for _, one := range situations {
		firing, err := one.firing(file)
		if err != nil {
			return fmt.Errorf("%s: %w", one.Name, err)
		}
		found[one.Name] = firing
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

// Each as its name and its labels.
func (s situation) firing(file string) (firing []string, err error) {
	language := parser.NewParser(parser.Options{})
	load := fmt.Sprintf("load %s\n  %s\n", interval, strings.Join(s.Series, "\n  "))
	suite, err := promqltest.NewLazyLoader(load, promqltest.LazyLoaderOpts{Parser: language})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, suite.Close()) }()
	suite.SubqueryInterval = interval
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc:    rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage()),
		AppendableV2: suite.Storage(),
		Context:      context.Background(),
		NotifyFunc:   func(context.Context, string, ...*rules.Alert) {},
		Logger:       promslog.NewNopLogger(),
		Parser:       language,
	})
	groups, errs := manager.LoadGroups(interval, labels.EmptyLabels(), "", nil, false, file)
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	end := time.Unix(0, 0).UTC().Add(time.Duration(s.Lasts) * time.Minute)
	for now := time.Unix(0, 0).UTC(); !now.After(end); now = now.Add(interval) {
		suite.WithSamplesTill(now, func(failure error) {
			err = errors.Join(err, failure)
			for _, group := range groups {
				group.Eval(suite.Context(), now)
				for _, rule := range group.Rules() {
					err = errors.Join(err, rule.LastError())
				}
			}
		})
	}
	for _, group := range groups {
		for _, rule := range group.Rules() {
			if alert, is := rule.(*rules.AlertingRule); is {
				for _, active := range alert.ActiveAlerts() {
					if active.State == rules.StateFiring {
						firing = append(firing, active.Labels.String()+" "+active.Annotations.Get("summary"))
					}
				}
			}
		}
	}
	sort.Strings(firing)
	return firing, err
}
