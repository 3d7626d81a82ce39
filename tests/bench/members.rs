//! The driver with few members and with many, all simulated, each behind TLS at an address of its own: what it takes when nothing
//! happens, as the replica that leads and as one that stands by; what a volume takes; how it starts, also on half a processor, with few open
//! files, and where one member in ten is dead; whether others wait beside one that is dead, slow or floods; how soon another replica is in
//! the place of one that died; and what the agent of virtual nodes takes.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use tokio::time::sleep;

use super::{
    agent, beside, conditions,
    question::{MANY, OF_A_THIRD, Plan, Question, THIRDS, idle},
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
    "The members' storage binds at once; beside one that is dead, slow or floods it takes 50 ms.",
    "A dead member takes connections and says nothing; a slow one answers after two seconds, and one that floods says to each request one letter \
     without end.",
    "Where nothing happens it is looked at for fifteen minutes with 1000 members, and for five with fewer: some things are done once in a \
     quarter of an hour.",
    "Twice a second the driver is asked how many members serve, until all do: that is part of a start's processor time.",
    "Each call names the places of all members, twice, as external-provisioner does; to write that takes the bench some of the same \
     processors. Where it is said, it names ten of them, as with ten members.",
    "Volumes that are there from the beginning are bound and marked; no pod uses them.",
    "Members are files, all of which a driver looks at once a second; in life they are mostly Secrets, which it watches.",
];

/// Who makes volumes, and how many places a call names.
const CASES: [(&str, usize); 3] = [("few", FEW), ("many", usize::MAX), ("many-ten-named", FEW)];
const PROCESSOR: &str = "idle: of a processor (%)";
const TO_A_MEMBER: &str = "idle: requests to a member a second";
const TO_THE_HOST: &str = "idle: requests to the host a second";
const OF_FEW: &str = "rate, of that with few members (%)";

/// Where it comes to nothing, what the driver said is kept: its folder goes with its clusters.
async fn answer(question: Question, members: usize, rounds: usize, plan: &Plan, sheet: &mut Sheet) -> Result<()> {
    let part = question.part(members, plan.volumes);
    println!("{part}");
    let mut world = World::new(members, plan.volumes, question.storage_takes()).await?;
    let done = match question {
        Question::Idle => Box::pin(at_rest(&world, &part, sheet)).await,
        Question::Rate => Box::pin(rate(&world, plan.volumes, rounds, &part, sheet)).await,
        Question::Beside => Box::pin(beside::measure(&world, rounds, &part, sheet)).await,
        Question::Ready => Box::pin(start::freely(&world, rounds, &part, sheet)).await,
        Question::Start => Box::pin(start::on_half_a_processor(&world, rounds, &part, sheet)).await,
        Question::Files => Box::pin(start::with_few_files(&world, rounds, &part, sheet)).await,
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
    let look = async || anyhow::Ok([leader.so_far().await?, standby.so_far().await?]);
    let mut looks = vec![look().await?];
    for _ in 0..THIRDS {
        sleep(idle / THIRDS).await;
        looks.push(look().await?);
    }
    let sizes = [leader.size()?, standby.size()?];
    for ((at, replica), mut figures) in [&leader, &standby].into_iter().enumerate().zip(sizes) {
        let a_second = |what: usize| (looks[looks.len() - 1][at][what] - looks[0][at][what]) / idle.as_secs_f64();
        let to_a_member = a_second(1) / world.names.len() as f64;
        figures.extend([(PROCESSOR, a_second(0) * 100.0), (TO_A_MEMBER, to_a_member), (TO_THE_HOST, a_second(2))]);
        sheet.add(part, replica.role, &figures);
        for third in looks.windows(2) {
            let used = (third[1][at][0] - third[0][at][0]) / (idle / THIRDS).as_secs_f64();
            sheet.add(part, replica.role, &[(OF_A_THIRD, used * 100.0)]);
        }
    }
    leader.subject.stop().await?;
    standby.subject.stop().await
}

/// In turns with few members, in an order that goes round. Calls that name the places of many are long, and take the bench and gRPC time
/// themselves: so many members are asked by short ones as well.
async fn rate(world: &World, volumes: u32, rounds: usize, part: &str, sheet: &mut Sheet) -> Result<()> {
    let beside = World::new(FEW, volumes, Duration::ZERO).await?;
    let (mut many, _) = Replica::start(world, "many", world.names.len(), Vec::new()).await?;
    let (few, _) = Replica::start(&beside, "few", FEW, Vec::new()).await?;
    for world in [world, &beside] {
        world.leads().await?;
    }
    // The first round opens connections, and is not counted.
    for round in 0..=rounds {
        let mut seen = HashMap::new();
        for (case, named) in CASES.into_iter().cycle().skip(round).take(CASES.len()) {
            many.subject.named = named.min(world.names.len());
            let (replica, world) = if case == few.role { (&few, &beside) } else { (&many, world) };
            seen.insert(case, replica.volumes(world, &format!("{case}-{round}")).await?);
        }
        // What comes first is the rate.
        let of_few = seen[few.role][0].1;
        for (case, _) in CASES.into_iter().filter(|_| round > 0) {
            let mut figures = seen.remove(case).unwrap_or_default();
            if case != few.role {
                figures.push((OF_FEW, figures[0].1 / of_few * 100.0));
            }
            sheet.add(part, case, &figures);
        }
        sheet.write()?;
    }
    few.subject.stop().await?;
    many.subject.stop().await
}

fn goals(sheet: &Sheet, plan: &Plan) -> Vec<Row> {
    let counts = plan.counts.iter().copied();
    let of_any = |count| agent::goals(sheet, plan, count).into_iter().chain(start::of_its_own(sheet, plan, count));
    let among_many = counts.clone().filter(|count| *count >= MANY).flat_map(|count| of(sheet, plan, count));
    among_many.chain(counts.flat_map(of_any)).collect()
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
    for (who, _) in CASES {
        let seen = sheet.middle(&work, who, OF_FEW);
        rows.extend(seen.map(|seen| Row::at_least(format!("{who}, {OF_FEW}"), Some(95.0), seen)));
    }
    rows.extend(beside::goals(sheet, plan, count));
    rows.extend(start::goals(sheet, plan, count));
    rows.extend(takeover::goals(sheet, plan, count));
    rows
}
