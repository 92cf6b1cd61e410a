//! A pool as its host sees it, and what a start says to be served from it.

use std::collections::VecDeque;
use std::ffi::CString;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::process::mailbox::{Waiter, lock};
use crate::process::reactor::{self, Command, next_token};
use crate::process::spec::Program;
use crate::witness::Witness;

/// How many ways of being warm a pool knows again.
const MOST_RECIPES: usize = 64;

/// Templates within one bound of memory; two pools share nothing.
#[derive(Debug)]
pub struct Pool {
    pub(super) id: u64,
    pub(super) memory_bytes: u64,
    is_closed: AtomicBool,
    recipes: Mutex<VecDeque<Arc<Recipe>>>,
}

/// How one template stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub state: &'static str,
    /// 0 where no process is.
    pub pid: i32,
    pub spares: usize,
    pub forks: u64,
    pub memory_bytes: u64,
    /// How often in a row it has failed.
    pub failures: u32,
    /// Why it failed the last time.
    pub reason: String,
}

/// What makes a template of a program, many programs maybe.
#[derive(Debug)]
pub(super) struct Recipe {
    id: u64,
    pub(super) arg: CString,
    pub(super) program: Vec<u8>,
    pub(super) settings: Vec<u8>,
    /// What a template may read of the verified files, and nothing else of theirs.
    pub(super) sealed: Option<Arc<Witness>>,
}

/// How one program becomes a template.
#[derive(Debug, Clone)]
pub(super) struct Way {
    pub(super) recipe: Arc<Recipe>,
    pub(super) arg_index: usize,
}

/// From which pool, and how, one program is started warm.
#[derive(Debug, Clone)]
pub struct Warm {
    pub(super) pool: Arc<Pool>,
    pub(super) way: Way,
    /// Finds this start among those of the pool.
    pub(super) start: u64,
}

impl PartialEq for Way {
    fn eq(&self, other: &Self) -> bool {
        (self.recipe.id, self.arg_index) == (other.recipe.id, other.arg_index)
    }
}

impl Pool {
    #[must_use]
    pub fn new(memory_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            id: next_token(),
            memory_bytes,
            is_closed: AtomicBool::new(false),
            recipes: Mutex::default(),
        })
    }

    /// Whether everything starts cold.
    pub(super) fn is_closed(&self) -> bool {
        self.memory_bytes == 0 || self.is_closed.load(Ordering::Relaxed)
    }

    /// Ends every template and what it forked ahead; whether all ended within `patience`.
    pub fn close(&self, patience: Duration) -> bool {
        self.is_closed.store(true, Ordering::Relaxed);
        let Some(reactor) = reactor::running() else {
            return true;
        };
        let ended = Arc::new(Waiter::default());
        reactor.submit(Command::ClosePool(self.id, Some(Arc::clone(&ended))));
        ended.wait(patience).is_some()
    }

    #[must_use]
    pub fn stats(&self) -> Vec<Standing> {
        let Some(reactor) = reactor::running() else {
            return Vec::new();
        };
        let serving = lock(&reactor.serving);
        serving
            .as_ref()
            .map_or_else(Vec::new, |serving| serving.standings(self.id))
    }

    /// The same content is one recipe.
    fn recipe(
        &self,
        arg: CString,
        program: &[u8],
        settings: &[u8],
        sealed: Option<Arc<Witness>>,
    ) -> Arc<Recipe> {
        let mut known = lock(&self.recipes);
        let same = |recipe: &&Arc<Recipe>| {
            recipe.arg == arg
                && recipe.program == program
                && recipe.settings == settings
                && are_alike(recipe.sealed.as_ref(), sealed.as_ref())
        };
        if let Some(recipe) = known.iter().find(same) {
            return Arc::clone(recipe);
        }
        let recipe = Arc::new(Recipe {
            id: next_token(),
            arg,
            program: program.to_vec(),
            settings: settings.to_vec(),
            sealed,
        });
        known.truncate(MOST_RECIPES - 1);
        known.push_front(Arc::clone(&recipe));
        recipe
    }
}

fn are_alike(one: Option<&Arc<Witness>>, other: Option<&Arc<Witness>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one.saw_the_same(other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !*self.is_closed.get_mut()
            && let Some(reactor) = reactor::running()
        {
            reactor.submit(Command::ClosePool(self.id, None));
        }
    }
}

impl Warm {
    /// How `target` is warm: `arg` stands in for its argument `arg_index` in the template, which
    /// is sent `program` and `settings`. It serves no call unless `sealed` holds once it is ready.
    pub fn new(
        pool: &Arc<Pool>,
        target: &Program,
        arg_index: usize,
        arg: CString,
        program: &[u8],
        settings: &[u8],
        sealed: Option<Arc<Witness>>,
    ) -> Result<Self> {
        // The command stands before the arguments.
        if arg_index >= target.argv.len() - 1 {
            let message = format!("there is no argument {arg_index} to be warm with");
            return Err(Error::Invalid(message));
        }
        let recipe = pool.recipe(arg, program, settings, sealed);
        // Keyed with a secret of this process: nobody can look for two starts that share it.
        static SECRET: OnceLock<RandomState> = OnceLock::new();
        let mut hasher = SECRET.get_or_init(RandomState::new).build_hasher();
        (recipe.id, arg_index).hash(&mut hasher);
        (&target.path, &target.argv, &target.env, &target.cwd).hash(&mut hasher);
        Ok(Self {
            pool: Arc::clone(pool),
            way: Way { recipe, arg_index },
            start: hasher.finish(),
        })
    }
}
