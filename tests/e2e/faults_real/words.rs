//! What was said on objects while faults were played, as a page has it: each thing once, and nothing of it that is another one each time.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

/// What gRPC has before the words of a driver, and what is between the code and these.
const GRPC: [&str; 2] = ["rpc error: code = ", " desc = "];
/// In the place of what is another one each time.
const DRAWN: &str = "…";
/// In hexadecimal digits: of a UID the shortest and the longest part.
const UID: [usize; 2] = [4, 12];
/// What one in so many faults says, whichever they are, where there are so many at least.
const OFTEN: usize = 4;
const MANY: usize = 8;

/// While one fault was played in a namespace: what is said of several objects is said once, with all their names.
pub fn brief(said: &[String], namespace: &str) -> Vec<String> {
    let mut all: Vec<(&str, Vec<&str>, String)> = Vec::new();
    for line in said {
        let (object, words) = line.split_once(": ").unwrap_or((line.as_str(), ""));
        let (kind, name) = object.split_once(' ').unwrap_or((object, ""));
        let words = plain(words, namespace, name);
        match all.iter_mut().find(|(of, _, there)| *of == kind && *there == words) {
            Some((_, names, _)) => names.push(name),
            None => all.push((kind, vec![name], words)),
        }
    }
    let told = all.into_iter().map(|(kind, names, words)| {
        let (names, words) = (names.join(", "), if words.is_empty() { words } else { format!(": {words}") });
        format!("{kind} {names}").trim_end().to_owned() + &words
    });
    told.collect()
}

/// What many of these say, which is so whatever breaks.
pub fn often<'said>(all: impl IntoIterator<Item = &'said Vec<String>>) -> Vec<String> {
    let mut times: BTreeMap<&String, usize> = BTreeMap::new();
    let mut faults = 0;
    for said in all {
        faults += 1;
        for sentence in said {
            *times.entry(sentence).or_default() += 1;
        }
    }
    times.retain(|_, times| faults >= MANY && *times * OFTEN >= faults);
    times.into_keys().cloned().collect()
}

/// What each of these says, where there are several.
pub fn in_all(all: &[Vec<String>]) -> Vec<String> {
    let [first, others @ ..] = all else { return Vec::new() };
    let is_in_all = |sentence: &&String| !others.is_empty() && others.iter().all(|said| said.contains(*sentence));
    first.iter().filter(is_in_all).cloned().collect()
}

fn plain(words: &str, namespace: &str, name: &str) -> String {
    let mut words = words.to_owned();
    while let Some((before, after)) = words.split_once(GRPC[0])
        && let Some((_, said)) = after.split_once(GRPC[1])
    {
        words = format!("{before}{said}");
    }
    let words = words.replace(&format!("{namespace}/{name}"), DRAWN).replace(&format!("{namespace}/"), "");
    let words = words.replace(namespace, DRAWN);
    let words: Vec<String> = words.split(' ').map(without_time).collect();
    without_uids(&words.join(" "))
}

fn without_time(word: &str) -> String {
    let time = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
    if time.parse::<Timestamp>().is_ok() { word.replace(time, DRAWN) } else { word.to_owned() }
}

/// Neither UIDs nor hashes.
fn without_uids(text: &str) -> String {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    let (mut plain, mut name) = (String::new(), String::new());
    for letter in text.chars() {
        if is_of_name(letter) {
            name.push(letter);
        } else {
            plain += &without_uid(&std::mem::take(&mut name));
            plain.push(letter);
        }
    }
    plain + &without_uid(&name)
}

fn without_uid(name: &str) -> String {
    let is_hexadecimal = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_uid = |part: &str| {
        part.len() >= UID[1] && is_hexadecimal(part) && part.contains(|digit: char| digit.is_ascii_digit())
    };
    if !name.split('-').any(is_uid) {
        return name.to_owned();
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in name.split('-') {
        let part = if part.len() >= UID[0] && is_hexadecimal(part) { DRAWN } else { part };
        if part != DRAWN || parts.last() != Some(&DRAWN) {
            parts.push(part);
        }
    }
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &[&str]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_said_of_several_objects_is_said_once_with_all_their_names() {
        let said = lines(&[
            "PersistentVolumeClaim later: ProvisioningFailed: rpc error: code = Unavailable desc = member m: create claim shop/later: HTTP 500",
            "PersistentVolumeClaim now: ProvisioningFailed: rpc error: code = Unavailable desc = member m: create claim shop/now: HTTP 500",
            "Pod user: FailedScheduling: 0/3 nodes are available",
            "nothing",
        ]);
        let told = [
            "PersistentVolumeClaim later, now: ProvisioningFailed: member m: create claim …: HTTP 500",
            "Pod user: FailedScheduling: 0/3 nodes are available",
            "nothing",
        ];
        assert_eq!(brief(&said, "shop"), told);
    }

    #[test]
    fn times_uids_hashes_and_namespaces_are_no_difference() {
        for (words, expected) in [
            ("since 2026-11-30T01:02:03Z, in", "since …, in"),
            ("at (2026-11-30T01:02:03.5Z)", "at (…)"),
            ("(UID 30af50a6-19d0-43bf-8077-1f504f61f232) was", "(UID …) was"),
            ("pod kosmos-csi-consumer-ebfaf92d73c961a2 of", "pod kosmos-csi-consumer-… of"),
            ("claim movers/d36b9389a1990eba-174c1675-7ea0-46e5-a6ff-8a8f0d49b189 waits", "claim movers/… waits"),
            ("list claims of volume 0b9bc252d7d522a9675435dac335d82b: no", "list claims of volume …: no"),
            ("`kubectl -n shop describe pvc` of shop/old", "`kubectl -n … describe pvc` of old"),
            (
                "HTTP 500 after 2026 seconds of a-dead-face, deadbeefdead",
                "HTTP 500 after 2026 seconds of a-dead-face, deadbeefdead",
            ),
        ] {
            assert_eq!(plain(words, "shop", "now"), expected);
        }
    }

    #[test]
    fn what_many_faults_say_and_what_all_of_some_say_is_known() {
        let one = |number: usize| {
            lines(&["always", if number.is_multiple_of(4) { "at times" } else { "else" }, &format!("only {number}")])
        };
        let all: Vec<Vec<String>> = (0..8).map(one).collect();
        assert_eq!(often(&all), ["always", "at times", "else"]);
        assert!(often(&all[..7]).is_empty(), "these are few");
        assert_eq!(in_all(&all[1..4]), ["always", "else"]);
        assert!(in_all(&all[..1]).is_empty() && in_all(&[]).is_empty());
    }
}
