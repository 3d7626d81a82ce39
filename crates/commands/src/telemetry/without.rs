//! A program that is built without the feature `otlp` sends no traces, and says so to whoever asks for them.

use super::BoxedLayer;

#[derive(Debug, Default)]
pub struct Traces(());

impl Traces {
    #[expect(clippy::unused_async, reason = "the one that sends traces waits")]
    pub async fn end(self) {}
}

pub(super) fn begin<S>(_: &str, _: &str) -> Result<(BoxedLayer<S>, Traces), String> {
    Err("this program sends no traces, as it was built without them, which is the default of images: build it with the feature `otlp` \
         (`make image FEATURES=otlp` in a checkout), or leave this setting out"
        .to_owned())
}
