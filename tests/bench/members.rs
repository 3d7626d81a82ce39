//! The driver with few members and with many, all simulated, each behind TLS at an address of its own: what it takes when nothing
//! happens, as the replica that leads and as one that stands by; what a volume takes; how it starts, also on half a processor, with few open
//! files, and where one member in ten is dead; how soon another replica is in the place of one that died; and what the agent of virtual
//! nodes takes.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::time::sleep;

use super::{
    agent, conditions,
    question::{MANY, Plan, Question, idle},
    replica::{MEMORY, Replica, pair},
    report::{Row, missed, print},
    sheet::Sheet,
    start, takeover,
    world::World,
};

/// Few, to compare with.
const FEW: usize = 10;

const UNLIKE_LIFE: [&str; 9] = [
    "All API servers are simulated, in the bench's own process, which shares the processors with the driver: their TLS handshakes are part \
     of how long a start takes.",
    "Objects have no managedFields, and nothing else is in the clusters.",
    "The members' storage binds at once.",
    "A dead member takes connections and says nothing.",
    "Where nothing happens it is looked at for fifteen minutes with 1000 members, and for five with fewer: some things are done once in a \
     quarter of an hour.",
    "Twice a second the driver is asked how many members serve, until all do: that is part of a start's processor time.",
    "Each call names the places of all members, twice, as external-provisioner does; to write that takes the bench some of the same \
     processors.",
    "Volumes that are there from the beginning are bound and marked; no pod uses them.",
    "Members are files, all of which a driver looks at once a second; in life they are mostly Secrets, which it watches.",
];

const PROCESSOR: &str = "idle: of a processor (%)";
const TO_A_MEMBER: &str = "idle: requests to a member a second";
const TO_THE_HOST: &str = "idle: requests to the host a second";
const OF_FEW: &str = "rate, of that with few members (%)";

/// Where it comes to nothing, what the driver said is kept: its folder goes with its clusters.
async fn answer(question: Question, members: usize, rounds: usize, plan: &Plan, sheet: &mut Sheet) -> Result<()> {
    let part = question.part(members, plan.volumes);
    println!("{part}");
    let mut world = World::new(members, plan.volumes).await?;
    let done = match question {
        Question::Idle => Box::pin(at_rest(&world, &part, sheet)).await,
        Question::Rate => Box::pin(rate(&world, plan.volumes, rounds, &part, sheet)).await,
        Question::Start => Box::pin(start::on_half_a_processor(&world, rounds, &part, sheet)).await,
        Question::Files => Box::pin(start::with_few_files(&world, &part, sheet)).await,
        Question::Takeover => Box::pin(takeover::measure(&world, rounds, &part, sheet)).await,
        Question::Agent => Box::pin(agent::measure(&mut world, &part, sheet)).await,
    };
    if done.is_err() {
        println!("logs of the drivers: {}", world.keep_logs(&part)?.display());
    }
    done
}

/// What was seen is kept at once, and told also where something fails.
pub async fn measure(plan: &Plan) -> Result<()> {
    let (head, run) = (conditions::conditions(&UNLIKE_LIFE), conditions::now());
    let mut sheet = Sheet::begin(&plan.json, plan.minutes.is_some(), head, run)?;
    let done = Box::pin(all(plan, &mut sheet)).await;
    conditions::print(sheet.head());
    sheet.print();
    let rows = goals(&sheet, plan);
    print(&rows);
    sheet.write()?;
    println!("\nall rounds as JSON: {}", plan.json.display());
    done?;
    ensure!(!plan.is_strict || !rows.is_empty(), "there is no goal for what was asked");
    ensure!(!plan.is_strict || missed(&rows) == 0, "{} goals were missed", missed(&rows));
    Ok(())
}

/// Rounds that were seen whole are not seen again.
async fn all(plan: &Plan, sheet: &mut Sheet) -> Result<()> {
    let until = plan.minutes.map(|minutes| Instant::now() + Duration::from_mins(minutes));
    let (mut is_over, mut failed) = (false, Vec::new());
    for count in &plan.counts {
        for question in &plan.asked {
            let part = question.part(*count, plan.volumes);
            let left = question.rounds(plan.rounds).saturating_sub(sheet.whole_rounds(&part));
            if left == 0 {
                continue;
            }
            // What comes later may take less.
            if until.is_some_and(|until| Instant::now() + question.expected(*count, left) > until) {
                is_over = true;
                continue;
            }
            // What comes to nothing keeps nobody from the others.
            if let Err(error) = answer(*question, *count, left, plan, sheet).await {
                println!("{part}: {error:#}");
                failed.push(part);
            }
            sheet.write()?;
        }
    }
    if is_over {
        println!("the time is over: the same command goes on with what is left");
    }
    ensure!(failed.is_empty(), "came to nothing: {}", failed.join("; "));
    Ok(())
}

/// Told of both at once: with one of them there is no round.
async fn at_rest(world: &World, part: &str, sheet: &mut Sheet) -> Result<()> {
    let ([leader, standby], idle) = (pair(world).await?, idle(world.names.len()));
    println!("  nothing happens for {} minutes", idle.as_secs() / 60);
    let before = [leader.so_far().await?, standby.so_far().await?];
    sleep(idle).await;
    let mut seen = Vec::new();
    for (replica, before) in [&leader, &standby].into_iter().zip(before) {
        let now = replica.so_far().await?;
        let [used, members, host] = std::array::from_fn(|at| (now[at] - before[at]) / idle.as_secs_f64());
        let mut figures = replica.size()?;
        let to_a_member = members / world.names.len() as f64;
        figures.extend([(PROCESSOR, used * 100.0), (TO_A_MEMBER, to_a_member), (TO_THE_HOST, host)]);
        seen.push((replica.role, figures));
    }
    for (role, figures) in seen {
        sheet.add(part, role, &figures);
    }
    leader.subject.stop().await?;
    standby.subject.stop().await
}

/// In turns with few members, of which each is first every second time.
async fn rate(world: &World, volumes: u32, rounds: usize, part: &str, sheet: &mut Sheet) -> Result<()> {
    let beside = World::new(FEW, volumes).await?;
    let (many, _) = Replica::start(world, "many", world.names.len(), Vec::new()).await?;
    let (few, _) = Replica::start(&beside, "few", FEW, Vec::new()).await?;
    for world in [world, &beside] {
        world.leads().await?;
    }
    // The first round opens connections, and is not counted.
    for round in 0..=rounds {
        let of_few = async || few.volumes(&beside, &format!("few-{round}")).await;
        let of_many = async || many.volumes(world, &format!("many-{round}")).await;
        let (in_few, mut in_many) = if round.is_multiple_of(2) {
            let in_few = of_few().await?;
            (in_few, of_many().await?)
        } else {
            let in_many = of_many().await?;
            (of_few().await?, in_many)
        };
        // What comes first is the rate.
        in_many.push((OF_FEW, in_many[0].1 / in_few[0].1 * 100.0));
        if round > 0 {
            sheet.add(part, few.role, &in_few);
            sheet.add(part, many.role, &in_many);
        }
    }
    few.subject.stop().await?;
    many.subject.stop().await
}

fn goals(sheet: &Sheet, plan: &Plan) -> Vec<Row> {
    let counts = plan.counts.iter().copied();
    let of_agents = counts.clone().flat_map(|count| agent::goals(sheet, plan, count));
    counts.filter(|count| *count >= MANY).flat_map(|count| of(sheet, plan, count)).chain(of_agents).collect()
}

fn of(sheet: &Sheet, plan: &Plan, count: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    let idle = Question::Idle.part(count, plan.volumes);
    for (who, figure, goal) in [
        ("leader", MEMORY, 250.0),
        ("leader", PROCESSOR, 5.0),
        ("leader", TO_A_MEMBER, 0.02),
        ("standby", MEMORY, 200.0),
        ("standby", PROCESSOR, 2.0),
        ("standby", TO_A_MEMBER, 0.02),
    ] {
        let seen = sheet.middle(&idle, who, figure);
        rows.extend(seen.map(|seen| Row::at_most(format!("{who}, {figure}"), Some(goal), seen)));
    }
    let work = Question::Rate.part(count, plan.volumes);
    let seen = sheet.middle(&work, "many", OF_FEW);
    rows.extend(seen.map(|seen| Row::at_least(OF_FEW.to_owned(), Some(95.0), seen)));
    rows.extend(start::goals(sheet, plan, count));
    rows.extend(takeover::goals(sheet, plan, count));
    rows
}
