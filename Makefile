# What can be done with a checkout. `make` lists it.
#
# The cluster tests find two programs next to their own: examples/clusters, which guards a fleet of clusters, and
# member-driver, the members' storage. So everything is built before any of them runs.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory
export TIMEFORMAT := == took %0lR

CARGO ?= cargo
MEMBERS ?= 2
IMAGE ?= localhost/kosmos-csi
TAG ?= $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
TARGET := $(or $(CARGO_TARGET_DIR),target)
CLUSTERS := $(TARGET)/debug/examples/clusters
LOG := $(TARGET)/test.log

# The backtrace of a failed assertion hides what it says.
export RUST_BACKTRACE := 0

# Tests that need neither clusters nor Go, but for csi-sanity, which is a Go program. The faults compute, while the others
# wait for most of their time, and go first when they do not.
FAULTS := --test faults
# Of these, what kills the driver at each of its requests: a third of them.
KILLED := wherever_the_driver_is_killed
QUICK := --workspace --lib --bins --test layering --test between --test edges --test memory --test figures --test floods --test ui --test secrets --test dev --test agent --test fleet --test mount --test operator
ifneq ($(shell command -v go),)
QUICK += --test sanity
endif
# The simulator's own tests are a tenth of what `make check` builds: it has them while somebody changes the simulator.
SAME_SIMULATOR := $(if $(shell git status --porcelain crates/simulate 2>&1),,--exclude simulate)
# Those of another program than the one that images have.
TRACES := --workspace --features otlp --test traces --test secrets
# Tests that need the programs of real clusters, but no clusters.
WITH_TOOLS := --workspace --test browser --test tools --test interface --test dev-kubectl --test simulated --test instructions
# This one waits for most of its time, and so does so beside others.
WAITING := --workspace --test mover
# Each test of these has a thread and waits there for its turn on a fleet, so most of them have been running for long,
# which nobody has to know.
E2E = $(if $(ONLY),,KOSMOS_CSI_ALL_TESTS=1) $(CARGO) test --workspace --test e2e -- --test-threads=512 $(ONLY) | grep --line-buffered -v 'has been running for over'
# The fleets end when the tests have: what they leave goes within seconds, and is not to meet what comes next.
ENDED := for look in {1..120}; do compgen -G "$${TMPDIR:-/tmp}/kosmos-fleet-*" > /dev/null || break; sleep 0.25; done

# The order of tests is drawn; SEED=<number> draws the same one again. The harness shuffles and tells times only to who asks
# for what is not stable in it, which is said to the test programs alone: what is built stays the same.
SEED ?= $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' ')
export KOSMOS_CSI_ORDER := $(SEED)
TRIPLE := $(shell rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
DRAWN = CARGO_TARGET_$(TRIPLE)_RUNNER='env RUSTC_BOOTSTRAP=1' $(CARGO) test
# All that measures and is measured is built at once: each alone would have dependencies of other features, which take minutes.
RELEASE := $(CARGO) build --release --workspace --bins --example bench --example clusters
# What the bench is to do, and for how long at most: what is left is done by the same command.
BENCH = $(TARGET)/release/examples/bench $(if $(MINUTES),--minutes $(MINUTES))
SUBJECTS ?= member-driver mock-driver bare-accepted kosmos-csi-accepted kosmos-csi-account kosmos-csi-one-thread
MEMBERS_OF_BENCH ?= 1,100,1000
RESULTS := bench bench-subjects bench-chain bench-members bench-scheduler \
	$(addsuffix -a-thousand,idle-among rate-among beside-one-of start-among files-of takeover-among agent-of) \
	agent-of-a-hundred ready-with-100000-volumes
# The first schedules of faults are among the tests without clusters; these and all kills are played beside the clusters, with what
# those leave of the processors. The thirty schedules of both together find each planted bug that one of a hundred does
# (docs/faults.md).
MORE := chrt --idle 0 env KOSMOS_CSI_SEED=6 KOSMOS_CSI_FAULTED_OPERATIONS=5000 $(CARGO) test --workspace $(FAULTS) -- every_promise $(KILLED) --nocapture
AS_DRAWN := -Z unstable-options --report-time --shuffle-seed=$(KOSMOS_CSI_ORDER)
PLAYED = nice -n 5 env $(DRAWN) --workspace $(FAULTS) --no-fail-fast -- $(AS_DRAWN)

# $(1) is played beside what follows, until `beside_ends`; what it says is kept and shown then. A process of the
# shell's own group would not hear of Ctrl-C.
beside = rm -f $(TARGET)/beside.log; set -m; $(1) > $(TARGET)/beside.log 2>&1 & beside=$$!; set +m; trap 'kill -- -$$beside 2>/dev/null || true' EXIT
# It runs, and needs no program any more that another build rebuilds.
begun = while kill -0 $$beside 2>/dev/null && ! grep -qs Running $(TARGET)/beside.log; do sleep 0.2; done
beside_ends = wait $$beside || code=1; trap - EXIT; cat $(TARGET)/beside.log

say = printf '\n== %s (%(%T)T)\n' '$(1)' -1

.PHONY: help
help: ## This list
	@echo "usage: make <target>"
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do \
		printf '  %-14s %s\n' "$$name" "$$text"; done

# Who tries it waits for the build, and then for nothing: what is optimised is so for tests.
TRIED := $(foreach package,"*" simulate $(addprefix kosmos-csi-,cluster domain driver leaf),--config 'profile.dev.package.$(package).opt-level=0')

.PHONY: dev
dev: ## Try it without clusters: a host and MEMBERS=2 members in one process; DIR=<folder> keeps them there
	@$(CARGO) build --bin kosmos-csi $(TRIED)
	@exec $(TARGET)/debug/kosmos-csi dev --members $(MEMBERS) $(if $(DIR),--dir "$(DIR)")

.PHONY: check
check: lint-code ## Quick: formatting, lints, and the tests that need no real clusters, with a drawn sixth of the crash points
	@$(call say,build of the tests)
	@# An example that is named among the tests is built as one of them, and not to be run by hand.
	@time { $(CARGO) test --no-run $(FAULTS) $(QUICK) $(SAME_SIMULATOR); $(CARGO) build --workspace --example clusters; }
	@$(call say,csi-sanity)
	@if command -v go >/dev/null; then time $(CLUSTERS) build csi-sanity; \
		else echo "there is no Go here: csi-sanity cannot be built, and its test is left out"; fi
	@$(call say,tests without clusters)
	@echo "order of tests: SEED=$(KOSMOS_CSI_ORDER)"
	@code=0; time { $(call beside,KOSMOS_CSI_QUICK=1 $(PLAYED)); \
		$(DRAWN) $(QUICK) $(SAME_SIMULATOR) --no-fail-fast -- $(AS_DRAWN) || code=1; $(beside_ends); }; exit $$code

.PHONY: soak
soak: packages ## Hours, as root: a million operations under faults (KOSMOS_CSI_FAULTED_OPERATIONS, from KOSMOS_CSI_SEED on), every pair of crashes, bugs planted to be found; goes on where it was ended; PARTS=<names> of tests/soak.sh --list
	@$(call say,faults on simulated clusters)
	@time tests/soak.sh $(PARTS)

.PHONY: lint
lint: lint-code ## Formatting, lints, and the dependencies' licences where cargo-deny is installed
	@$(call say,dependencies)
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
		$(CARGO) deny check bans licenses sources; \
		if ls -d $${CARGO_HOME:-$$HOME/.cargo}/advisory-db* >/dev/null 2>&1; then $(CARGO) deny --offline check advisories; \
		else echo "the database of advisories is not here: they are not checked (cargo deny fetch)"; fi; \
	else echo "cargo-deny is not installed: licences and sources are not checked (cargo install cargo-deny)"; fi

.PHONY: test
test: ## Everything, also on real clusters; installs and builds what that needs (root, Go); SEED=<number> draws the order
	@mkdir -p $(TARGET) && rm -rf $(TARGET)/test-logs $(TARGET)/test-times
	@begin=$$SECONDS; code=0; $(MAKE) lint tools all-tests 2>&1 | tee $(LOG) || code=1; \
	tests/times.sh $(LOG) $(TARGET)/test-times/e2e.tsv | tee $(TARGET)/test-times.txt || \
		echo "the table of times above is not whole; the tests count all the same"; \
	awk -v seconds=$$((SECONDS - begin)) ' \
		/^test result:/ { passed += $$4; failed += $$6; ignored += $$8 } \
		END { printf "\n== after %d min %d s\n", seconds / 60, seconds % 60; \
			printf "%d passed, %d failed%s\n", passed, failed, ignored ? ", " ignored " ignored" : "" }' $(LOG); \
	exit $$code

.PHONY: traces
traces: ## Traces, by a program that is built for them
	@$(call say,traces)
	@time $(DRAWN) $(TRACES) --no-fail-fast -- $(AS_DRAWN)

.PHONY: e2e
e2e: tools ## The driver on real clusters; ONLY=<part of a name> picks tests
	@$(call say,the driver on real clusters)
	@time $(E2E)

.PHONY: faults-real
faults-real: tools ## Hours, as root: the matrix of faults on real clusters, and all else that takes long there; goes on where it was ended; SEED=<number>; PARTS=<names> of tests/faults-real.sh --list; ROWS=<parts of names of faults, with commas>; MINUTES=<for which it begins something>; ROUNDS=<how often each fault>; BEFORE=<commit to upgrade from>
	@$(call say,faults on real clusters)
	@time SEED=$(if $(filter file,$(origin SEED)),,$(SEED)) ROWS="$(ROWS)" MINUTES="$(MINUTES)" ROUNDS="$(ROUNDS)" BEFORE="$(BEFORE)" tests/faults-real.sh $(PARTS)

.PHONY: game-day
game-day: ## Write docs/game-day.md again, from what `make faults-real` has seen last of each fault
	@$(call say,the page of the game day)
	@history="$(abspath $(TARGET))/faults-real/rows.jsonl"; if [ -e "$$history" ]; then \
		KOSMOS_CSI_GAME_DAY=$$history $(CARGO) test --workspace --test e2e -- page_of_the_game_day; \
	else echo "no fault was played here on real clusters yet, and the page stays as it is: make faults-real plays them"; fi

.PHONY: sanity
sanity: ## csi-sanity against the driver on real clusters
	@$(MAKE) e2e ONLY=sanity

.PHONY: bench
bench: bench-tools ## What the driver costs beside the least that a driver can do, in turns on real API servers, with the release build: an hour and a quarter, in shares with MINUTES=<number>; ARGS=<options of bench --help>; also target/bench.json
	@$(call say,bench)
	@time $(BENCH) $(ARGS)
	@$(if $(MINUTES)$(ARGS),true,$(MAKE) bench-chain)

.PHONY: bench-chain
bench-chain: bench-tools ## What the whole chain takes, from a claim of the host to its being bound, beside a member's own; also target/bench-chain.json
	@$(call say,the whole chain)
	@time $(CARGO) test --release --workspace --test e2e chain -- --ignored --nocapture

.PHONY: bench-subjects
bench-subjects: bench-tools ## The same with other CSI drivers and other forms of this one beside it, one and a hundred callers; also target/bench-subjects.json
	@$(call say,bench)
	@time $(BENCH) --callers 1,100 --delays 0 --json $(TARGET)/bench-subjects.json $(SUBJECTS:%=--subject tests/bench/subjects/%.json) $(ARGS)

.PHONY: bench-members
bench-members: bench-build ## The driver with 1, 100 and 1,000 simulated members: memory, files, processor and requests while nothing happens, and how it starts, also where one in ten is dead: three quarters of an hour; MINUTES, ARGS; also target/bench-members.json
	@$(call say,members)
	@time $(BENCH) --rounds 3 --members $(MEMBERS_OF_BENCH) $(ARGS)

.PHONY: bench-goals
bench-goals: ## What is to hold with 1,000 simulated members, on a quiet machine: fails where it does not; goes on where it was ended; PARTS=<names> of tests/goals.sh --list
	@$(call say,goals)
	@time tests/goals.sh $(PARTS)

.PHONY: bench-scheduler
bench-scheduler: bench-tools ## How the real scheduler fares among 1,000 virtual nodes that tell of their room, and where they need not: a quarter of an hour; MINUTES, ARGS; also target/bench-scheduler.json
	@$(call say,scheduler)
	@time $(BENCH) --scheduler 1000 $(ARGS)

.PHONY: bench-page
bench-page: bench-build ## Put tables of what these and `bench-goals` have seen into docs/design/limits.md, with what was not seen yet
	@$(TARGET)/release/examples/bench page docs/design/limits.md $(RESULTS:%=--of $(TARGET)/%.json)

.PHONY: scale
scale: bench-build ## The driver with 100, 10,000 and 100,000 volumes and the agent with 1,000 members, all simulated: start, memory, rate
	@$(call say,scale)
	@time $(TARGET)/release/examples/bench --scale
	@$(call say,a thousand members)
	@time KOSMOS_CSI_MEMBERS=1000 $(CARGO) test --release --workspace --test fleet -- --nocapture

.PHONY: instructions
instructions: packages ## Count again how many instructions a volume takes, and write tests/instructions/figures.txt, by which `make test` holds it
	@KOSMOS_CSI_WRITE_FIGURES=1 $(CARGO) test --workspace --test instructions -- --nocapture

SAMPLED ?= kosmos-csi-accepted-sampled
.PHONY: flame
flame: bench-tools ## Where the driver's processor time goes with a hundred callers, sampled by perf: target/flame.svg, by function target/flame.txt; SAMPLED=kosmos-csi-sampled for one that waits until claims are bound
	@$(call say,samples)
	@time $(BENCH) --rounds 1 --callers 100 --delays 0 --json $(TARGET)/bench-flame.json --subject tests/bench/subjects/$(SAMPLED).json
	@perf report --stdio --no-children --sort dso,symbol --call-graph=none --input=$(TARGET)/samples.data > $(TARGET)/flame.txt
	@perf script --no-inline --fields=ip,sym --input=$(TARGET)/samples.data > $(TARGET)/samples.txt
	@$(TARGET)/release/examples/bench flame $(TARGET)/samples.txt $(TARGET)/flame.svg
	@head -40 $(TARGET)/flame.txt

.PHONY: profile
profile: packages ## Which functions a CreateVolume and a DeleteVolume take their instructions in, of a release build: target/profile
	@KOSMOS_CSI_PROFILE=$(abspath $(TARGET))/profile $(CARGO) test --release --workspace --test instructions -- --include-ignored --nocapture --test-threads=1 in_these_functions what_the_clusters_do

.PHONY: cuts
cuts: packages ## What COMMITS=<commits> were worth: instructions of a volume before and after each, as a table; goes on where it was ended
	@tests/instructions/cuts.sh $(COMMITS)

.PHONY: bench-move
bench-move: bench-tools ## What a copy of a volume's files costs beside plain rsync over the same folders, and a move on real clusters, with the release build
	@$(call say,copies)
	@time $(CARGO) test --release --workspace --test mover -- --ignored --nocapture --test-threads=1 copy_against second_pass
	@$(call say,release build)
	@time { $(CARGO) build --release --workspace --bins --example clusters --no-default-features; \
		mkdir -p $(TARGET)/release/image; ln -f $(TARGET)/release/kosmos-csi $(TARGET)/release/image/kosmos-csi; }
	@$(call say,a move)
	@time $(CARGO) test --release --workspace --test e2e -- --ignored --nocapture --test-threads=512 volume_with_much_data volumes_move_a_few

.PHONY: book
book: ## The documentation as a book, target/book; mdBook is built the first time
	@docs/book.sh $(TARGET)/book

.PHONY: image
image: ## The container images IMAGE=localhost/kosmos-csi TAG=<version>, IMAGE-node for real nodes and IMAGE-mover: no container daemon needed; FEATURES=otlp: they can send traces
	@$(call say,release build)
	@test -n "$(FEATURES)" || time $(CARGO) build --release --bin kosmos-csi --no-default-features
	@test -z "$(FEATURES)" || time $(CARGO) build --release --bin kosmos-csi --no-default-features --features "$(FEATURES)"
	@$(CARGO) build --example clusters
	@$(call say,images)
	@$(CLUSTERS) image --program $(TARGET)/release/kosmos-csi --name "$(IMAGE)" --tag "$(TAG)" --folder $(TARGET)/images

.PHONY: manifests
manifests: ## Render the chart into deploy/, for those without Helm, and write its README
	@$(CARGO) build --example clusters
	@$(CLUSTERS) build helm
	@HELM=$$($(CLUSTERS) where helm) deploy/manifests/render.sh
	@deploy/chart/readme.sh > deploy/chart/kosmos-csi/README.md

.PHONY: tools
tools: build ## Install the packages and build the programs that real clusters need
	@$(call say,what real clusters need)
	@time { $(CLUSTERS) packages; $(CLUSTERS) build; }

.PHONY: packages
packages: ## Install the packages that copies of volumes and real clusters need
	@$(CARGO) build --example clusters
	@$(CLUSTERS) packages

.PHONY: clusters-up
clusters-up: tools ## A host and MEMBERS=2 members with a node each, for you to try things on
	@$(call say,clusters)
	@$(CLUSTERS) up --members $(MEMBERS)

.PHONY: clusters-down
clusters-down: build ## End them
	@$(call say,clusters)
	@$(CLUSTERS) down

# Parts of the above.

.PHONY: lint-code
lint-code:
	@$(call say,formatting and lints)
	@$(CARGO) fmt --all --check
	@for patch in tests/faults/planted/*.patch; do git apply --check "$$patch" || { \
		echo "$$patch plants a bug, and no longer fits the code: write it again"; exit 1; }; done
	@time $(CARGO) clippy --workspace --all-targets --features otlp -- -D warnings

.PHONY: build
build:
	@$(call say,build)
	@# First the program of images; the example makes the features of all dependencies those of the second build. The bench is measured
	@# as a release alone, and of it the lints have seen that it compiles.
	@time { $(CARGO) build --workspace --bins --example clusters --no-default-features; \
		mkdir -p $(TARGET)/debug/image; ln -f $(TARGET)/debug/kosmos-csi $(TARGET)/debug/image/kosmos-csi; \
		$(CARGO) build --workspace --lib --bins --tests --example clusters; }

.PHONY: bench-build
bench-build:
	@$(call say,release build)
	@time $(RELEASE)

.PHONY: bench-tools
bench-tools: bench-build
	@$(call say,what real clusters need)
	@time { $(TARGET)/release/examples/clusters packages; $(TARGET)/release/examples/clusters build; }

.PHONY: all-tests
all-tests:
	@echo "order of tests: SEED=$(KOSMOS_CSI_ORDER)"
	@$(call say,tests without clusters)
	@code=0; time { $(call beside,{ code=0; $(PLAYED) --skip $(KILLED) || code=1; \
			$(DRAWN) $(WAITING) --no-fail-fast -- $(AS_DRAWN) || code=1; exit $$code; }); \
		$(DRAWN) $(QUICK) --no-fail-fast -- $(AS_DRAWN) || code=1; \
		$(DRAWN) $(WITH_TOOLS) --no-fail-fast -- $(AS_DRAWN) || code=1; $(beside_ends); }; \
	$(call say,traces); \
	$(call beside,$(MORE)); \
	$(begun); \
	time $(DRAWN) $(TRACES) --no-fail-fast -- $(AS_DRAWN) || code=1; \
	$(call say,tests on real clusters); \
	time $(E2E) || code=1; \
	$(ENDED); \
	$(call say,schedules and kills that were played beside the clusters); \
	time { $(beside_ends); }; exit $$code
